"""``streams-py new app``: a starter project whose test passes right away.

The files are written to a hidden folder next to the target. The folder gets its name when it is complete, so there is
a whole project or no project.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

from streams_py.cli.usage import RefusedError, refusing

_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_NAME_CHARS_MAX: Final = 60
_TAKEN: Final = {"app", "test", "tests"}


app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.command("app")
@refusing
def new_app(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the project and its folder, for example word-count.")
    ],
) -> int:
    """Create a small project: a topology, its test, a compose file with a broker.

    The test passes right away.

    Exit status: 0 created; 2 the name exists already or is not valid, and nothing was created.

    Example: streams-py new app word-count
    """
    wrong = _wrong_name(name)
    if wrong:
        raise RefusedError(wrong)
    folder = Path(name)
    if os.path.lexists(folder):
        raise RefusedError(f"{name} exists already; choose another name, or run this in another folder")
    try:
        _write(folder, project_files(name))
    except OSError as error:
        raise RefusedError(
            f"{name} cannot be created here ({error.strerror or error}); no file was left behind"
        ) from None
    print(f"created {name}/. Next steps:\n\n  cd {name}")
    run = f"python -m {_module(name)}.app"
    print(f"  {'python -m pytest':{len(run)}}   # passes; needs no broker")
    print(f"  {run}   # runs until Ctrl-C, on a small broker that it starts")
    return 0


def project_files(name: str) -> dict[str, str]:
    """Return the text of every file of the project, by path."""
    from streams_py.testing.broker.interface import KAFKA_VERSION

    module = _module(name)
    values = {
        "name": name,
        "module": module,
        "version": metadata.version("kafka-streams-py"),
        "kafka": KAFKA_VERSION,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    files = {
        "README.md": _README,
        "pyproject.toml": _PYPROJECT,
        "compose.yaml": _COMPOSE,
        ".gitignore": ".venv/\n__pycache__/\n",
        f"{module}/__init__.py": "",
        f"{module}/app.py": _APP,
        "tests/test_app.py": _TEST,
    }
    return {path: Template(text).substitute(values) for path, text in files.items()}


def _module(name: str) -> str:
    return name.replace("-", "_")


def _wrong_name(name: str) -> str:
    """Return why a name is not valid, or an empty text if it is valid."""
    if not _NAME.fullmatch(name) or len(name) > _NAME_CHARS_MAX:
        return (
            f"{name!r} cannot name a project; use small letters, digits and hyphens, starting with a letter, "
            f"at most {_NAME_CHARS_MAX} characters, for example word-count"
        )
    module = _module(name)
    if module in _TAKEN or keyword.iskeyword(module) or importlib.util.find_spec(module) is not None:
        return f"{name!r} cannot name a project, because Python would find another module of that name; choose another"
    return ""


def _write(folder: Path, files: dict[str, str]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for path, text in files.items():
            target = unfinished / path
            target.parent.mkdir(exist_ok=True)
            target.write_text(text, encoding="utf-8")
        umask = os.umask(0)
        os.umask(umask)
        unfinished.chmod(0o777 & ~umask)
        unfinished.rename(folder)
    except BaseException:  # also Ctrl-C
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


_APP: Final = '''"""Counts the words of the lines in topic `lines`, and writes the counts to topic `counts`."""

import logging
import os
import re

from streams_py import KafkaStreams, StreamsBuilder, Topology, serdes


def build_topology() -> Topology:
    """Build the topology: lines to words to counts."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream("lines").flat_map_values(lambda line: re.findall(r"\\w+", line.lower()))
    words.group_by(lambda _, word: word, name="by-word").count(store="counts").to_stream().to("counts")
    return builder.build()


def main() -> None:
    """Run until Ctrl-C or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    config = {
        "application.id": "$name",
        "bootstrap.servers": os.environ.get("BOOTSTRAP", "embedded"),
        "commit.interval.ms": 1000,  # a count follows its line within about a second
    }
    KafkaStreams(build_topology(), config).run()


if __name__ == "__main__":
    main()
'''

_TEST: Final = '''"""The topology, without a broker."""

from $module.app import build_topology
from streams_py import serdes
from streams_py.testing import TopologyTestDriver


def test_words_are_counted() -> None:
    with TopologyTestDriver(build_topology()) as driver:
        lines = driver.input_topic("lines", key=serdes.STRING, value=serdes.STRING)
        lines.send("", "to be or not to be")
        counts = driver.output_topic("counts", key=serdes.STRING, value=serdes.INT64)
        assert counts.read_to_dict() == {"to": 2, "be": 2, "or": 1, "not": 1}
'''

_PYPROJECT: Final = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.0.1"
requires-python = ">=$python"
dependencies = ["kafka-streams-py[cli]>=$version"]

[project.optional-dependencies]
test = ["kafka-streams-py[testing]>=$version"]

[tool.hatch.build.targets.wheel]
packages = ["$module"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""

_README: Final = """# $name

```
python -m pip install -e '.[test]'
python -m pytest
```

Run it. `embedded`, the default, is a small broker on this machine, shared by whatever runs here and gone with the last:

```
python -m $module.app                                       # in one terminal, or several
streams-py produce lines "to be or not to be"               # in another
streams-py consume counts --value int64 --follow
```

The same on Apache Kafka:

```
docker compose up -d --wait
export BOOTSTRAP=localhost:9092
streams-py topics --create lines
streams-py topics --create counts
python -m $module.app
```
"""

_COMPOSE: Final = """# One broker, on loopback, without authentication: docker compose up -d --wait

services:
  broker:
    image: apache/kafka:$kafka
    ports: ["127.0.0.1:9092:9092"]
    volumes: ["broker:/var/lib/kafka/data"]
    healthcheck:
      test: [CMD, bash, -c, "exec 3<>/dev/tcp/localhost/19092"]
      interval: 2s
      timeout: 5s
      retries: 60
    environment:
      CLUSTER_ID: c3RyZWFtcy1weS1kZXYtMQ
      KAFKA_NODE_ID: 1
      KAFKA_PROCESS_ROLES: broker,controller
      KAFKA_CONTROLLER_QUORUM_VOTERS: 1@broker:9093
      KAFKA_CONTROLLER_LISTENER_NAMES: CONTROLLER
      KAFKA_LISTENERS: CONTROLLER://:9093,INTERNAL://:19092,HOST://:9092
      KAFKA_ADVERTISED_LISTENERS: INTERNAL://broker:19092,HOST://localhost:9092
      KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,HOST:PLAINTEXT
      KAFKA_INTER_BROKER_LISTENER_NAME: INTERNAL
      KAFKA_LOG_DIRS: /var/lib/kafka/data
      KAFKA_AUTO_CREATE_TOPICS_ENABLE: "false"
      KAFKA_NUM_PARTITIONS: 4
      KAFKA_DEFAULT_REPLICATION_FACTOR: 1
      KAFKA_MIN_INSYNC_REPLICAS: 1
      KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: 1
      KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: 1
      KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: 1
      KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR: 1
      KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR: 1
      KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: 0

volumes: {broker: {}}
"""
