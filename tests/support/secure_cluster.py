"""A Kafka cluster with every kind of security: TLS, SCRAM, client certificates, ACLs.

One node. `SASL` is TLS with SCRAM, `MUTUAL` is TLS with client certificates, `PLAINTEXT` is there
for the readiness probe alone and may do nothing. Brokers and controller know each other by
certificate. Only `admin` and the broker itself are super users; everybody else has what was
granted and nothing more.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not re-exported
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from pipeline.kafka.acls import Grant
from pipeline.sandbox.brokers.local import ClusterConfig, LocalCluster
from pipeline.sandbox.brokers.server_properties import PLAINTEXT, Listener
from tests.support.authority import Authority, Identity
from tests.support.waiting import wait_until

ADMIN = "admin"
HOST = "127.0.0.1"
SASL = Listener("SASL", "SASL_SSL")
MUTUAL = Listener("MUTUAL", "SSL")
ANSWER_S = 30
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass
class SecureCluster:
    """The running cluster, its authority and its users; passwords are made for this run."""

    cluster: LocalCluster
    authority: Authority
    folder: Path
    passwords: dict[str, str]
    certificates: dict[str, Identity] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """Where users come in with a password."""
        return self.cluster.bootstrap(SASL.name)

    def settings(self, user: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """What `--set` is given for a user with a password; the password is in a file."""
        path = self.folder / f"{user}.password"
        if not path.exists():  # not written again: a command started before may be reading it
            path.write_text(self.passwords[user] + "\n")
        return {
            "kafka.bootstrap_servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "security.mechanism": mechanism,
            "security.ca_file": str(self.authority.ca),
            "security.username": user,
            "security.password_file": str(path),
        }

    def mutual(self, user: str) -> dict[str, str]:
        """The same for a user with a certificate."""
        if user not in self.certificates:
            self.certificates[user] = self.authority.issue(user, "client.invalid")
        own = self.certificates[user]
        return {
            "kafka.bootstrap_servers": self.cluster.bootstrap(MUTUAL.name),
            "security.protocol": "SSL",
            "security.ca_file": str(self.authority.ca),
            "security.certificate_file": str(own.certificate),
            "security.key_file": str(own.key),
        }

    def client(self, user: str) -> dict[str, Any]:
        """librdkafka's settings for a user with a password."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.location": str(self.authority.ca),
            "log_level": 0,
        }

    @cached_property
    def admin(self) -> Any:
        """Who may do everything."""
        return AdminClient(self.client(ADMIN))

    def grant(self, user: str, grants: Iterable[Grant], prefix: str) -> None:
        """Let a user do this under a prefix; in force on return."""
        wanted = [_binding(user, each, prefix) for each in grants]
        for done in self.admin.create_acls(wanted).values():
            done.result(ANSWER_S)
        wait_until(lambda: set(wanted) <= self._in_force(user), f"rights of {user}")

    def revoke(self, user: str, grants: Iterable[Grant], prefix: str) -> None:
        """Take it back; in force on return."""
        gone = [_binding(user, each, prefix) for each in grants]
        filters = [_exactly(each) for each in gone]
        for done in self.admin.delete_acls(filters).values():
            done.result(ANSWER_S)
        wait_until(lambda: not set(gone) & self._in_force(user), f"rights of {user} gone")

    def _in_force(self, user: str) -> set[Any]:
        nothing: Any = None
        every = AclBindingFilter(
            ResourceType.ANY,
            nothing,
            ResourcePatternType.ANY,
            f"User:{user}",
            nothing,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return set(self.admin.describe_acls(every).result(ANSWER_S))

    def set_password(self, user: str, password: str) -> None:
        """Another password on the broker; ours stays what it was."""
        change = UserScramCredentialUpsertion(
            user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
        )
        for done in self.admin.alter_user_scram_credentials([change]).values():
            done.result(ANSWER_S)


def _binding(user: str, grant: Grant, prefix: str) -> Any:
    """A grant as the admin client takes it."""
    return AclBinding(
        ResourceType[grant.resource.upper().replace("-", "_")],
        prefix + grant.name,
        ResourcePatternType.PREFIXED if grant.starts else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", grant.operation).upper()],
        AclPermissionType.ALLOW,
    )


def _exactly(each: Any) -> Any:
    return AclBindingFilter(
        each.restype,
        each.name,
        each.resource_pattern_type,
        each.principal,
        each.host,
        each.operation,
        each.permission_type,
    )


@contextlib.contextmanager
def open_secure_cluster(folder: Path, users: Iterable[str]) -> Iterator[SecureCluster]:
    """A cluster for the length of the block; every user has a password and no rights."""
    authority = Authority(folder / "tls")
    passwords = {user: f"secret-of-{user}-{folder.name}" for user in (ADMIN, *users)}
    own = authority.issue("broker", HOST)
    scram = [
        part
        for user, password in passwords.items()
        for mechanism in MECHANISMS
        for part in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
    ]
    config = ClusterConfig(
        properties=_properties(authority, own),
        listeners=(PLAINTEXT, MUTUAL, SASL),
        format_args=scram,
    )
    with LocalCluster(config) as cluster:
        yield SecureCluster(cluster, authority, folder, passwords)


def _properties(authority: Authority, own: Identity) -> dict[str, str]:
    mutual = {
        f"listener.name.{name}.ssl.client.auth": "required" for name in ("mutual", "controller")
    }
    return mutual | {
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,MUTUAL:SSL,SASL:SASL_SSL,CONTROLLER:SSL"
        ),
        "inter.broker.listener.name": MUTUAL.name,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": _SCRAM,
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": _SCRAM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # A password that was changed is asked for again before long.
        "listener.name.sasl.scram-sha-512.connections.max.reauth.ms": "15000",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": f"User:{ADMIN};User:broker",
    }


_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
