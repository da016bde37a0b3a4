"""An application that starts from state that a warm start has written."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from streams_py import KafkaStreams
from streams_py.cli.spark.bootstrap import bootstrap_app
from streams_py.errors import InvalidStateStoreError
from streams_py.history.loading import load_topology
from tests.support.spark.cluster import Cluster

_numbers = itertools.count()

_PROGRAM = """
from streams_py import StreamsBuilder, TimeWindows, serdes


def word_count():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream({lines!r}).flat_map_values(str.split)
    words.group_by(lambda _, word: word).count(store="counts")
    return builder.build()


def word_count_with_output():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream({lines!r}).flat_map_values(str.split)
    words.to({out!r})
    words.group_by(lambda _, word: word).count(store="counts")
    return builder.build()


def by_minute():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream({lines!r}).group_by_key().windowed_by(TimeWindows.of(60_000)).count(store="counts")
    return builder.build()
"""


class App:
    """One application with its input topic, and the commands for it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.id = f"warm-{os.getpid()}-{next(_numbers)}"
        self.lines, self.out = cluster.topic(2), cluster.topic(2)
        self.counted: Counter[str] = Counter()
        self.plan_file = folder / "plan.json"
        self.state_dir = folder / "state"
        program = folder / "app.py"
        program.write_text(_PROGRAM.format(lines=self.lines, out=self.out))
        self.topology = f"{program}:word_count"
        self.with_output = f"{program}:word_count_with_output"

    def produce(self, count: int, first: int = 0, *, distinct: int = 0) -> None:
        """``count`` lines, each with a number of words that are in no other line."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        for at in range(first, first + count):
            text = f"w{at % 7} w{at % 11} same"
            if distinct:
                text += "".join(f" d{at * distinct + number}" for number in range(distinct))
            self.counted.update(text.split())
            producer.produce(self.lines, text.encode(), partition=at % 2, timestamp=1_700_000_000_000 + at)
        assert producer.flush(30) == 0

    def do(self, *arguments: str) -> Result:
        place = ["--bootstrap", self.cluster.bootstrap, "--plan", str(self.plan_file)]
        return CliRunner().invoke(bootstrap_app, [*arguments, *place])

    def ok(self, *arguments: str) -> str:
        result = self.do(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    def plan(self, *more: str) -> Result:
        return self.do("plan", self.topology, "--application-id", self.id, *more)

    def live(self, **config: object) -> KafkaStreams:
        """Underscores stand for dots."""
        return KafkaStreams(
            load_topology(self.topology),
            {
                "application.id": self.id,
                "bootstrap.servers": self.cluster.bootstrap,
                "state.dir": str(self.state_dir),
                "commit.interval.ms": 100,
                "auto.offset.reset": "earliest",
                **{key.replace("_", "."): value for key, value in config.items()},
            },
        )


def state_of(streams: KafkaStreams) -> dict[str, int]:
    try:
        return dict(streams.store("counts").all())
    except InvalidStateStoreError:
        return {}


def committed_text(app: App) -> dict[tuple[str, int], tuple[int, str]]:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=app.cluster.bootstrap)
    try:
        found = admin.list_group_offsets(app.id)
    finally:
        admin.close()
    by_partition = found.get(app.id, found)
    return {(at.topic, at.partition): (entry.offset, entry.metadata) for at, entry in by_partition.items()}
