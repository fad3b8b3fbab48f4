"""A certificate authority for one test run, and the files that brokers and clients are given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, as two files and as the one that Kafka's own PEM stores take."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates; `ca` is the file to trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._signer = trustme.CA()
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = folder / "ca.pem"
        self._signer.cert_pem.write_to_path(str(self.ca))

    def issue(self, name: str, *hosts: str) -> Identity:
        """A certificate with this common name, good for these hosts (or IP addresses)."""
        made = self._signer.issue_cert(*hosts, common_name=name)
        chain = b"".join(each.bytes() for each in made.cert_chain_pems)
        # Java reads PKCS#8 only.
        key = load_pem_private_key(made.private_key_pem.bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        files = [self._folder / f"{name}-{part}.pem" for part in ("certificate", "key", "both")]
        for path, data in zip(files, (chain, key, key + chain), strict=True):
            path.write_bytes(data)
        return Identity(*files)
