"""The Java programs of these tests, compiled once: to launch one from its source compiles it on every start."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from streams_py.testing.broker import NoBrokerError
from streams_py.testing.broker.jars import java_path, kafka_jars

_HERE = Path(__file__).parent
JAVA_WORKER = _HERE / "JavaWorker.java"
STATE_WORKER = _HERE / "StateWorker.java"


class JavaPrograms:
    """Compiles into ``folder``. NoBrokerError without a JDK."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._java = java_path()
        if shutil.which("javac") is None:
            raise NoBrokerError("install a JDK, not only a JRE")

    def command(self, source: Path, jars: Path) -> tuple[str, ...]:
        """What runs a program with these jars, against which it is compiled."""
        classes = self._folder / jars.name / source.stem
        if not classes.is_dir():
            subprocess.run(
                ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True
            )  # fails with the compiler's words in the test's output
        return (
            self._java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{jars}/*:{classes}", source.stem,
        )  # fmt: skip


def java_programs_or_skip(folder: Path) -> JavaPrograms:
    """Return the programs, or skip the test on a machine without Java's compiler or Kafka's jars."""
    try:
        kafka_jars()
        return JavaPrograms(folder)
    except NoBrokerError as error:  # an address in STREAMS_PY_BOOTSTRAP, or Docker, on a machine without Java
        pytest.skip(f"a Java member needs Java's compiler and Kafka's jars: {error}")
