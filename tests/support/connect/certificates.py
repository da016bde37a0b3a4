"""Certificates for tests: an authority and the certificates that it signs, as PEM files."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """An authority. ``certificate`` is the path of its certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        own = self._builder(self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        own = own.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def signed(self, name: str, *hosts: str) -> Path:
        """A file with a key and a certificate for localhost, 127.0.0.1 and these hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName(host) for host in ("localhost", *hosts)]
        more = x509.SubjectAlternativeName([*names, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = self._builder(subject, key.public_key()).add_extension(more, critical=False)
        path = self._folder / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        path.chmod(0o600)
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )
