"""The program that runs drawn programs on Kafka Streams' test driver, compiled against jars that Maven fetches."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from streams_py.testing.broker import KAFKA_VERSION, NoBrokerError
from streams_py.testing.broker.jars import java_path

_HERE = Path(__file__).parent
_PROGRAM = "DrawnPrograms"


def java_command(folder: Path) -> list[str]:
    """Fetch the jars into ``folder``, compile the program, and return the command that starts it. NoBrokerError says
    what is missing."""
    java = java_path()
    for tool in ("mvn", "javac"):
        if shutil.which(tool) is None:
            raise NoBrokerError(f"no {tool}")
    jars, classes = folder / "jars", folder / "classes"
    fetched = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(_HERE / "pom.xml"), f"-Dkafka.version={KAFKA_VERSION}",
         "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    if fetched.returncode:
        raise NoBrokerError(f"Maven could not fetch kafka-streams-test-utils: {fetched.stdout[-500:]}")
    subprocess.run(
        ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(_HERE / f"{_PROGRAM}.java")], check=True
    )  # the compiler's words are in the test's output
    options = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return [java, *options, "-cp", f"{jars}/*:{classes}", _PROGRAM]
