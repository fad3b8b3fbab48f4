"""Security: one place for both clients; secrets from files and in no text."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtgol_core.config import ConfigError
from pipeline.faust_ext.app import TokenFile, faust_credentials
from pipeline.kafka.auth import Security
from pipeline.settings import KafkaSettings, SecuritySettings, Settings
from tests.support.authority import Authority

SECRET = "hunter2-very-secret"


def security(**own: Any) -> Security:
    kafka = KafkaSettings(bootstrap_servers="host:9092")
    settings = Settings(kafka=kafka, security=replace(SecuritySettings(), **own))
    return Security.of(settings)


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    return str(path)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key."""
    made = Authority(tmp_path_factory.mktemp("tls")).issue("me", "localhost")
    return str(made.certificate), str(made.key)


def test_plaintext_needs_nothing() -> None:
    plain = security()
    assert plain.librdkafka() == {"bootstrap.servers": "host:9092"}
    assert faust_credentials(plain) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_reaches_both_clients(secret: str, mechanism: str) -> None:
    own = security(
        protocol="SASL_PLAINTEXT", mechanism=mechanism, username="me", password_file=secret
    )
    client = own.librdkafka()
    assert client["security.protocol"] == "SASL_PLAINTEXT"
    assert (client["sasl.mechanism"], client["sasl.username"]) == (mechanism, "me")
    assert client["sasl.password"] == SECRET
    credentials = faust_credentials(own)
    assert (credentials.username, credentials.password) == ("me", SECRET)
    assert credentials.mechanism.value == mechanism
    assert credentials.protocol.value == "SASL_PLAINTEXT"


def test_mutual_tls_reaches_both_clients(certificate: tuple[str, str]) -> None:
    made, key = certificate
    own = security(protocol="SSL", ca_file=made, certificate_file=made, key_file=key)
    client = own.librdkafka()
    assert client["ssl.ca.location"] == client["ssl.certificate.location"] == made
    assert client["ssl.key.location"] == key
    credentials = faust_credentials(own)
    assert isinstance(credentials.context, ssl.SSLContext)
    assert credentials.context.check_hostname
    assert credentials.protocol.value == "SSL"


def test_hostnames_are_checked_unless_told_otherwise(certificate: tuple[str, str]) -> None:
    own = security(protocol="SSL", ca_file=certificate[0], check_hostname=False)
    assert own.librdkafka()["ssl.endpoint.identification.algorithm"] == "none"
    assert not faust_credentials(own).context.check_hostname


def test_a_password_over_tls_carries_the_context(certificate: tuple[str, str], secret: str) -> None:
    own = security(
        protocol="SASL_SSL",
        ca_file=certificate[0],
        mechanism="SCRAM-SHA-512",
        username="me",
        password_file=secret,
    )
    credentials = faust_credentials(own)
    assert credentials.protocol.value == "SASL_SSL"
    assert isinstance(credentials.ssl_context, ssl.SSLContext)


def test_a_bearer_token_is_read_again_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    own = security(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token_file=str(path))
    ask = own.librdkafka()["oauth_cb"]
    assert ask("")[0] == "first"
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 4_000_000_000}).encode()).decode()
    path.write_text(f"head.{claims.rstrip('=')}.signature")
    assert ask("")[1] == 4_000_000_000
    credentials = faust_credentials(own)
    assert isinstance(credentials.oauth_cb, TokenFile)
    assert asyncio.run(credentials.oauth_cb.token()).startswith("head.")


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"protocol": "SASL_SSL"}, "security.mechanism must be set"),
        ({"mechanism": "PLAIN"}, "security.mechanism needs protocol SASL_SSL"),
        ({"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"}, "security.username must be set"),
        (
            {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "me"},
            "security.password_file must be set",
        ),
        (
            {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER"},
            "security.token_file must be set",
        ),
        ({"protocol": "SSL", "ca_file": "/no/such/file"}, "security.ca_file: there is no file"),
        (
            {
                "protocol": "SASL_PLAINTEXT",
                "mechanism": "PLAIN",
                "username": "me",
                "password_file": "/no/such/file",
            },
            "security.password_file: cannot read /no/such/file",
        ),
    ],
)
def test_what_is_missing_is_named_at_the_start(own: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        security(**own)
    assert sentence in str(refusal.value)


def test_without_brokers_the_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="KAFKA_BOOTSTRAP_SERVERS"):
        Security.of(Settings())


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    with pytest.raises(ConfigError, match="the TLS files cannot be used"):
        security(protocol="SSL", ca_file=str(tmp_path / "ca.pem"))


def test_no_text_shows_a_secret(secret: str) -> None:
    own = security(
        protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="me", password_file=secret
    )
    for shown in (repr(own), str(own), repr(own.settings)):
        assert SECRET not in shown
