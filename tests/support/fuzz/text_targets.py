"""Fuzz targets for text: files of the state directory, configuration files, and settings sent as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from streams_protocol.task_list import TaskList
from streams_protocol.types import TaskId, TopicPartition
from streams_py.config.endpoint import parse_endpoint
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.state.directory.checkpoint import CHECKPOINT_FILE, read_checkpoint, write_checkpoint
from streams_py.state.directory.state_directory import StateDirectory
from tests.support.fuzz.target import Target, from_text


def _read_checkpoint(data: bytes, folder: Path) -> object:
    (folder / CHECKPOINT_FILE).write_bytes(data)
    return read_checkpoint(str(folder))


def _checkpoints(folder: Path) -> list[bytes]:
    partitions = [TopicPartition(topic, p) for topic in ("orders", "app-counts-changelog") for p in range(3)]
    write_checkpoint(str(folder), {tp: 1000 * n for n, tp in enumerate(partitions)})
    return [b"0\n0\n", b"0\n1\napp-s-changelog 3 -4\n", (folder / CHECKPOINT_FILE).read_bytes()]


_PROCESS_FILE: Final = "kafka-streams-process-metadata"
_LINES_FACTOR: Final = 48
"""Allowed memory as a multiple of the input: files are read as a list of lines, and each line is an object."""
_CONFIG_BYTES_MAX: Final = 100_000


def _read_process_id(data: bytes, folder: Path) -> object:
    """Read a process id file. A damaged file must give a new process id, never prevent the start."""
    home = folder / "state" / "app"
    home.mkdir(parents=True, exist_ok=True)
    (home / _PROCESS_FILE).write_bytes(data)
    directory = StateDirectory(str(home.parent), home.name)
    try:
        return directory.open()
    finally:
        directory.close()


def _config(name: str, samples: Callable[[Path], list[bytes]]) -> Target:
    def read(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return StreamsConfig.of(path)

    return Target(read, (ConfigError,), samples, memory_factor=_LINES_FACTOR, input_bytes_max=_CONFIG_BYTES_MAX)


_SETTINGS: Final = {
    "application.id": "app",
    "bootstrap.servers": "localhost:9092",
    "num.stream.threads": "2",
    "num.standby.replicas": "1",
    "upgrade.from": "2.3",
    "application.server": "host:8080",
    "acceptable.recovery.lag": "10000",
    "client.tag.zone": "eu-1",
    "rack.aware.assignment.tags": "zone",
    "topic.segment.bytes": "52428800",
    "consumer.max.poll.records": "1000",
    "processing.guarantee": "at_least_once",
}


def _properties_files(folder: Path) -> list[bytes]:
    return ["".join(f"{key} = {value}\n" for key, value in _SETTINGS.items()).encode(), b"application.id=a\\\nb\n# x\n"]


def _toml_files(folder: Path) -> list[bytes]:
    return [
        "".join(f'"{key}" = "{value}"\n' for key, value in _SETTINGS.items()).encode(),
        b"[application]\nid = 'x'\n",
    ]


TEXT_TARGETS: Final[Mapping[str, Target]] = {
    "task_id": Target(from_text(TaskId.parse), (ValueError,), lambda _: [b"0_0", b"12_345", b"billing__1_2"]),
    "task_list": Target(
        from_text(TaskList.of_tag),
        (ValueError,),
        lambda _: [b"2_0", b"0_0-5,1_*,2_7", b"0_0,0_1,0_2,3_4-5", b"1_0-2147483647"],
        write=lambda value: str(value).encode(),
    ),
    "end_point": Target(
        from_text(parse_endpoint), (ConfigError, ValueError), lambda _: [b"host:9092", b"https://host:443", b"[::1]:1"]
    ),
    "checkpoint": Target(_read_checkpoint, (ValueError,), _checkpoints, memory_factor=_LINES_FACTOR),
    "process_file": Target(_read_process_id, (), lambda _: [b'{"processId": "00000000-0000-0001-0000-000000000002"}']),
    "config_properties": _config("app.properties", _properties_files),
    "config_toml": _config("app.toml", _toml_files),
}
"""All parsers of text."""
