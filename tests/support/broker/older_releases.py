"""Older releases of Kafka Streams, for members that speak older versions of the assignment protocol.

Their jars are downloaded once, next to the jars of the broker.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path

from streams_py.testing.broker import NoBrokerError
from streams_py.testing.broker.jars import kafka_jars

VERSION_OF = {"2.5.1": 6, "3.1.2": 10}
"""The newest version that members of a release speak."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>streams-py</groupId><artifactId>older-release</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{release}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies>
<build><plugins><plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
<version>3.7.1</version></plugin></plugins></build></project>"""


def streams_jars(release: str) -> Path:
    """The folder with a release's jars, filled with Maven when it does not exist yet; NoBrokerError if that fails."""
    folder = kafka_jars().with_name(f"kafka-streams-{release}")
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(release, folder)
    return folder


def _fetch(release: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoBrokerError(f"no Maven to fetch Kafka Streams {release} (or put its jars into {folder})")
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))  # renamed when complete: never half a folder
    try:
        pom = part / "pom.xml"
        pom.write_text(_POM.format(release=release))
        done = subprocess.run(
            [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={part}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0 or not list(part.glob("kafka-streams-*.jar")):
            raise NoBrokerError(
                f"Maven could not fetch Kafka Streams {release}:\n{(done.stdout + done.stderr)[-2000:]}"
            )
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
