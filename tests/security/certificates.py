"""Certificates for tests: an authority of our own, and what it signs. Good and bad ones, as PEM files in one folder."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final

import msgspec
import trustme

DAY: Final = dt.timedelta(days=1)


class Identity(msgspec.Struct, frozen=True):
    """A certificate (with its chain) and its private key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """One certificate authority; `ca_file` is what its clients trust.

    Args:
        folder: where the files go.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder: Final = folder
        self._authority: Final = trustme.CA()
        self.ca_file: Final = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca_file))

    def revoke(self, identity: Identity) -> Path:
        """Write a revocation list with this certificate in it."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        ours = x509.load_pem_x509_certificate(self.ca_file.read_bytes())
        key = serialization.load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        theirs = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
        now = dt.datetime.now(dt.UTC)
        entry = x509.RevokedCertificateBuilder().serial_number(theirs.serial_number).revocation_date(now - DAY).build()
        listed = x509.CertificateRevocationListBuilder().issuer_name(ours.subject).last_update(now - DAY)
        signed = listed.next_update(now + DAY).add_revoked_certificate(entry).sign(key, hashes.SHA256())  # type: ignore[arg-type]
        path = self._folder / f"without-{identity.certificate.stem}.crl"
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return path

    def issue(self, name: str, *hosts: str, lasted_days: int | None = None) -> Identity:
        """Sign a certificate for *hosts* (names or addresses).

        Args:
            name: of the files.
            lasted_days: given, it expired that many days ago.
        """
        until = None if lasted_days is None else dt.datetime.now(dt.UTC) - lasted_days * DAY
        issued = self._authority.issue_cert(*hosts, common_name=name, not_after=until)
        made = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        certificates = b"".join(part.bytes() for part in issued.cert_chain_pems)
        made.certificate.write_bytes(certificates)
        issued.private_key_pem.write_to_path(str(made.key))
        return made
