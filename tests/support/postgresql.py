"""A PostgreSQL server for tests and measurements, in a temporary directory on a free port."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from glob import glob
from pathlib import Path

PASSWORD = "Xq-5ecret-7"
"""A password that :mod:`tests.secret_search` finds in output."""


class NoPostgresqlError(Exception):
    """PostgreSQL is not installed."""


def _binaries() -> Path:
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else [Path(at) for at in sorted(glob("/usr/lib/postgresql/*/bin"))]
    if not places:
        raise NoPostgresqlError(
            "PostgreSQL not found: initdb is neither on PATH nor in /usr/lib/postgresql (apt install postgresql)"
        )
    return places[-1]


@contextlib.contextmanager
def postgresql_server(password: str) -> Iterator[str]:
    """Run an empty server and yield its URL, including the password. It does not survive a crash (no fsync).

    Raises NoPostgresqlError if PostgreSQL is not installed.
    """
    binaries = _binaries()
    user = "postgres" if os.geteuid() == 0 else None  # initdb refuses to run as root
    directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short, because a socket's path is limited
    try:
        if user:
            shutil.chown(directory, user)
        (directory / "password").write_text(password)

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
            yield f"postgresql://connect:{password}@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
