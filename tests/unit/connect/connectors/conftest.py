"""A PostgreSQL server of its own for these tests, in a temporary directory on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

PASSWORD = "Xq-secret-7"


def _binaries() -> Path | None:
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else [Path(at) for at in sorted(glob("/usr/lib/postgresql/*/bin"))]
    return places[-1] if places else None


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL, with password, of an empty server."""
    binaries = _binaries()
    if binaries is None:
        reason = "no PostgreSQL here: initdb is neither on PATH nor in /usr/lib/postgresql (apt install postgresql)"
        warnings.warn(f"tests of the PostgreSQL connectors are skipped: {reason}", stacklevel=1)  # seen without -rs
        pytest.skip(reason)
    user = "postgres" if os.geteuid() == 0 else None  # initdb refuses root
    directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a path short enough for a socket
    try:
        if user:
            shutil.chown(directory, user)
        (directory / "password").write_text(PASSWORD)

        def run(program: str, *arguments: str) -> None:
            subprocess.run(
                [binaries / program, "-D", directory / "data", *arguments],
                check=True, user=user, cwd=directory, stdout=subprocess.DEVNULL, timeout=300,
            )  # fmt: skip

        run("initdb", "-U", "connect", "-A", "scram-sha-256", "--pwfile", str(directory / "password"), "-E", "UTF8",
            "--no-sync", "--locale=C")  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = f"-p {port} -k {directory} -c listen_addresses=127.0.0.1 -c fsync=off -c timezone=UTC"
        run("pg_ctl", "-w", "-t", "240", "-l", str(directory / "log"), "-o", options, "start")
        try:
            yield f"postgresql://connect:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
