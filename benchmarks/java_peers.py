"""Java peers, compiled on the spot against Kafka's own jars."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.cluster import BenchmarkError
from streams_py.testing.broker import NoBrokerError
from streams_py.testing.broker.jars import java_path, kafka_jars

__all__ = ["compiled"]


def compiled(source: str, folder: Path) -> list[str]:
    """Compile a file of ``benchmarks/java`` into the folder; the command that starts a class of it, without the class.

    BenchmarkError says why that cannot be.
    """
    try:
        java, jars = java_path(), kafka_jars()
    except NoBrokerError as error:
        raise BenchmarkError(str(error).splitlines()[0]) from None
    compiler = shutil.which("javac")
    if compiler is None:
        raise BenchmarkError("no javac (a JDK, not only a JRE, is needed)")
    path = Path(__file__).parent / "java" / source
    done = subprocess.run(
        [compiler, "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BenchmarkError(f"javac refused {source}: {done.stderr[-500:]}")
    return [java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{jars}/*:{folder}"]
