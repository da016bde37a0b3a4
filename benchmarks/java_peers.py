"""Java peers, compiled against Kafka's own jars."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.cluster import BenchmarkError
from streams_py.testing.broker import NoBrokerError
from streams_py.testing.broker.jars import java_path, kafka_jars


def compiled(source: str, folder: Path) -> list[str]:
    """Compile a file of ``benchmarks/java``; return the command that starts one of its classes, without the class.

    Raises BenchmarkError with the reason if that is not possible.
    """
    try:
        java, jars = java_path(), kafka_jars()
    except NoBrokerError as error:
        raise BenchmarkError(str(error).splitlines()[0]) from None
    compiler = shutil.which("javac")
    if compiler is None:
        raise BenchmarkError("no javac (needs a JDK, not only a JRE)")
    path = Path(__file__).parent / "java" / source
    done = subprocess.run(
        [compiler, "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BenchmarkError(f"javac failed for {source}: {done.stderr[-500:]}")
    return [java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{jars}/*:{folder}"]
