"""Java, and Apache Kafka's own jars from Maven Central.

The jars (48 files, 115 MB) are downloaded once into the folder ``kafka-<version>`` of ``$STREAMS_PY_KAFKA_CACHE``, by
default ``~/.cache/streams-py``. A lock file makes concurrent downloads safe. On a machine without internet access, copy
the folder there by hand.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

from streams_py.testing.broker.interface import KAFKA_VERSION, NoBrokerError, kafka_version

_JAVA_MIN = 17


def java_path() -> str:
    """Return the path of a Java that can run Kafka 4. Raises NoBrokerError if it is not found."""
    path = shutil.which("java")
    if path is None:
        raise NoBrokerError("no Java")
    text = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    major = text.split('"')[1].split(".")[0] if text.count('"') >= 2 else ""
    if not major.isdigit() or int(major) < _JAVA_MIN:
        first_line = text.splitlines()[0] if text else "nothing"
        raise NoBrokerError(f"no Java {_JAVA_MIN} or newer ({path} reports: {first_line})")
    return path


def why_no_jvm() -> str | None:
    """Return in one line why Kafka cannot run on a JVM here; None if it can. Downloads the jars if missing."""
    try:
        java_path()
        kafka_jars(kafka_version())
    except NoBrokerError as error:
        return str(error).splitlines()[0]
    return None


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """Return the folder with the jars of a release, downloaded with Maven if it does not exist.

    Raises NoBrokerError if the download fails.
    """
    folder = _cache_folder(version)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():  # another process may have downloaded it meanwhile
            _fetch(folder, version)
    return folder


def _cache_folder(version: str) -> Path:
    cache = os.environ.get("STREAMS_PY_KAFKA_CACHE")
    if not cache:
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "streams-py")
    return Path(cache).resolve() / f"kafka-{version}"


def _fetch(folder: Path, version: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoBrokerError(f"no Maven to download Kafka's jars (or copy them to {folder})")
    print(f"downloading Apache Kafka {version} with Maven into {folder} (once) ...", file=sys.stderr)
    only = [] if version == KAFKA_VERSION else ["-Dbroker.only"]  # Java members always use KAFKA_VERSION
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))  # renamed when complete
    try:
        with resources.as_file(resources.files(__package__) / "pom.xml") as pom:
            done = subprocess.run(
                [maven, "-q", "-B", "-f", str(pom), f"-Dkafka.version={version}", *only,
                 "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={part}"],
                capture_output=True, text=True, check=False, cwd=part,
            )  # fmt: skip
        if done.returncode != 0 or not list(part.glob("kafka_2.13-*.jar")):
            said = (done.stdout + done.stderr).strip()
            why = next((line for line in said.splitlines() if "ERROR" in line), "no reason given")
            raise NoBrokerError(f"Maven could not download Kafka's jars: {why.strip()}\n{said[-2000:]}")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
