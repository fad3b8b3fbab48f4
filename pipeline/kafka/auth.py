"""Kafka security for both clients from one place: librdkafka here, Faust's by `faust_ext.app`.

Secrets are read from the files the settings name, when a client is made, and live only in what is
handed to that client; `Security` itself holds none, and its repr shows none. Faust itself is not
imported here: commands that only talk to librdkafka start fast.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dtgol_core.config import ConfigError
from pipeline.settings import KafkaSettings, SecuritySettings, Settings

TOKEN_LIFE_S = 300.0
"""How long a token counts that does not say when it ends: it is read from its file again then."""


@dataclass(frozen=True)
class Security:
    """How to authenticate. Make it once, at start: a missing file is found then."""

    settings: SecuritySettings = field(repr=False)
    bootstrap: str

    @staticmethod
    def of(settings: Settings) -> Security:
        """Checked: what the protocol and the mechanism need is there and can be read."""
        kafka: KafkaSettings = settings.kafka
        if not kafka.bootstrap_servers:
            raise ConfigError("no brokers are named: set KAFKA_BOOTSTRAP_SERVERS")
        security = Security(settings.security, kafka.bootstrap_servers)
        security._check()
        return security

    @property
    def encrypted(self) -> bool:
        """Whether the protocol is TLS."""
        return self.settings.protocol in ("SSL", "SASL_SSL")

    @property
    def authenticated(self) -> bool:
        """Whether the protocol is SASL."""
        return self.settings.protocol.startswith("SASL")

    def librdkafka(self) -> dict[str, Any]:
        """Settings for any confluent-kafka client. Holds secrets: never print it."""
        own = self.settings
        client: dict[str, Any] = {"bootstrap.servers": self.bootstrap}
        if own.protocol != "PLAINTEXT":
            client["security.protocol"] = own.protocol
        if self.encrypted:
            named = {
                "ssl.ca.location": own.ca_file,
                "ssl.certificate.location": own.certificate_file,
                "ssl.key.location": own.key_file,
            }
            client |= {key: value for key, value in named.items() if value}
            if own.key_password_file:
                client["ssl.key.password"] = _secret("key_password_file", own.key_password_file)
            if not own.check_hostname:
                client["ssl.endpoint.identification.algorithm"] = "none"
        if self.authenticated:
            client["sasl.mechanism"] = own.mechanism
            if own.mechanism == "OAUTHBEARER":
                client["oauth_cb"] = self._oauth
            else:
                client["sasl.username"] = own.username
                client["sasl.password"] = _secret("password_file", own.password_file)
        return client

    def ssl_context(self) -> ssl.SSLContext:
        """The same TLS for Python's own sockets, which aiokafka uses."""
        own = self.settings
        password = (
            _secret("key_password_file", own.key_password_file) if own.key_password_file else None
        )
        try:
            context = ssl.create_default_context(cafile=own.ca_file or None)
            if own.certificate_file:
                context.load_cert_chain(own.certificate_file, own.key_file, password)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
            raise ConfigError(f"the TLS files cannot be used: {reason}") from None
        context.check_hostname = own.check_hostname
        return context

    def secret(self, key: str) -> str:
        """The secret in the file that a setting names."""
        return _secret(key, getattr(self.settings, key))

    def _oauth(self, _: str) -> tuple[str, float]:
        """librdkafka's question for a token: the token, and when it ends in epoch seconds."""
        token = self.secret("token_file")
        return token, _ends_at(token)

    def _check(self) -> None:
        own = self.settings
        if self.authenticated and not own.mechanism:
            raise ConfigError(f"security.mechanism must be set for {own.protocol}")
        if own.mechanism and not self.authenticated:
            raise ConfigError(f"security.mechanism needs protocol SASL_SSL, not {own.protocol}")
        if self.authenticated and own.mechanism == "OAUTHBEARER" and not own.token_file:
            raise ConfigError("security.token_file must be set for OAUTHBEARER")
        if self.authenticated and own.mechanism != "OAUTHBEARER":
            for key in ("username", "password_file"):
                if not getattr(own, key):
                    raise ConfigError(f"security.{key} must be set for {own.mechanism}")
        if own.certificate_file and not own.key_file:
            raise ConfigError("security.key_file must be set with security.certificate_file")
        for key in ("ca_file", "certificate_file", "key_file"):
            if getattr(own, key) and not Path(getattr(own, key)).is_file():
                raise ConfigError(f"security.{key}: there is no file {getattr(own, key)}")
        if self.encrypted:
            self.ssl_context()
        for key in ("password_file", "key_password_file", "token_file"):
            if getattr(own, key):
                _secret(key, getattr(own, key))


def read_secret(key: str, path: str) -> str:
    """The text of a secret file, without the line's end. An error names the file, not the text."""
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text"
        raise ConfigError(f"{key}: cannot read {path}: {reason}") from None
    if not text:
        raise ConfigError(f"{key}: {path} is empty")
    return text


def _secret(key: str, path: str) -> str:
    return read_secret(f"security.{key}", path)


def _ends_at(token: str) -> float:
    """When a JWT ends by its `exp`; for any other token a while from now."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return time.time() + TOKEN_LIFE_S
