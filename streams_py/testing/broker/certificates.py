"""TLS certificates for tests, created with ``openssl``: a temporary authority and the certificates that it signs.

Keys are RSA with 2048 bits, which every TLS library supports. Not for production: private keys are stored unencrypted
in the folder, readable by their owner only.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streams_py.testing.broker.interface import NoBrokerError

_DAYS = 2


@dataclass(frozen=True, slots=True)
class Certificate:
    """Paths of a certificate and its private key, as PEM files."""

    certificate: Path
    key: Path

    def in_one_file(self, path: Path) -> Path:
        """Write key and certificate to one PEM file, the format of Kafka's ``ssl.keystore.type=PEM``."""
        path.touch(mode=0o600)
        path.write_text(self.key.read_text() + self.certificate.read_text())
        return path


class Authority:
    """A certificate authority with its files in ``folder``. Raises NoBrokerError without ``openssl``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        folder.mkdir(parents=True, exist_ok=True)
        self._own = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
        self._openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(_DAYS), "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-keyout", str(self._own.key), "-out", str(self._own.certificate),
        )  # fmt: skip

    @property
    def certificate(self) -> Path:
        """The authority's certificate, which the other side must trust (``ssl.ca.location``)."""
        return self._own.certificate

    def issue(self, name: str, *, hosts: Sequence[str] = (), expired: bool = False) -> Certificate:
        """Issue a certificate for ``CN=name``. ``hosts`` are given as ``IP:127.0.0.1`` or ``DNS:localhost``."""
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        extensions = self._folder / f"{name}.ext"
        self._openssl(
            "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
            "-keyout", str(made.key), "-out", str(request),
        )  # fmt: skip
        names = f"subjectAltName={','.join(hosts)}\n" if hosts else ""
        extensions.write_text(f"basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n{names}")
        self._openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self._own.certificate), "-CAkey", str(self._own.key),
            "-CAcreateserial", "-days", str(-1 if expired else _DAYS), "-extfile", str(extensions),
            "-out", str(made.certificate),
        )  # fmt: skip
        return made

    def _openssl(self, *arguments: str) -> None:
        tool = shutil.which("openssl")
        if tool is None:
            raise NoBrokerError("no openssl, which is needed to create certificates")
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoBrokerError(f"openssl {arguments[0]} failed: {done.stderr.strip()[-500:]}")
