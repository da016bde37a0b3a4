"""Plans of warm starts for a word count on a fake cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streams_protocol.types import TopicPartition
from streams_py import StreamsBuilder, Topology, serdes
from streams_py.adapters.confluent.answers import TopicRetention
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.history.bootstrap import BootstrapPlan, Step
from streams_py.history.bootstrap_planning import BootstrapAllowances, make_plan
from streams_py.history.bootstrap_topics import prepare, written
from streams_py.history.task import TaskSummary
from streams_py.ports import OffsetAndMetadata, TopicSpec
from streams_py.ports.described_groups import DescribedMember

APP = "shop"

CHANGELOG, BETWEEN = f"{APP}-counts-changelog", f"{APP}-counts-repartition"

CONFIG: Mapping[str, Any] = {"application.id": APP}


def word_count() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream("lines").flat_map_values(str.split)
    words.group_by(lambda _, word: word).count(store="counts")
    return builder.build()


class Cluster:
    """A cluster in memory: logs as (start, end), groups, and a list of all changes."""

    def __init__(self) -> None:
        self.topics = {"lines": 2}
        self.logs = {TopicPartition("lines", 0): (0, 5), TopicPartition("lines", 1): (0, 7)}
        self.offsets: dict[TopicPartition, int] = {}
        self.running: list[DescribedMember] = []
        self.done: list[str] = []
        self.kept: dict[str, TopicRetention] = {}
        self.size: int | None = 1_000
        self.name: str | None = "one"
        self.forbidden: set[str] = set()
        self.is_cut_off = False
        self.ids: dict[str, str] = {}

    def id(self) -> str | None:
        return self.name

    def partition_counts(self) -> Mapping[str, int]:
        return dict(self.topics)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: self.ids.get(topic, f"first {topic}") for topic in topics if topic in self.topics}

    def create_again(self, topic: str) -> None:
        """Delete a topic and create it again with the same partition count and more records."""
        self.ids[topic] = f"second {topic}"
        self.logs |= {at: (0, end + 100) for at, (_, end) in self.logs.items() if at.topic == topic}

    def starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {at: self.logs.get(at, (0, 0))[0] for at in partitions}

    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {at: self.logs.get(at, (0, 0))[1] for at in partitions}

    def members(self, group: str) -> Sequence[DescribedMember]:
        return self.running

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {at: self.offsets[at] for at in partitions if at in self.offsets}

    def create(self, specs: Sequence[TopicSpec]) -> None:
        for spec in specs:
            self.done.append(f"create {spec.name}")
            self.topics[spec.name] = spec.partitions

    def delete(self, topics: Sequence[str]) -> None:
        for topic in set(topics) & self.topics.keys():
            self.done.append(f"delete {topic}")
            del self.topics[topic]
            self.logs = {at: log for at, log in self.logs.items() if at.topic != topic}

    def forget(self, group: str) -> None:
        self.done.append(f"forget {group}")
        self.offsets.clear()

    def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        obeyed = {at: position.offset for at, position in offsets.items() if at.topic not in self.forbidden}
        self.offsets |= {} if self.running else obeyed
        if self.running or len(obeyed) < len(offsets):
            raise StreamsError("the offsets cannot be set")
        if self.is_cut_off:
            raise BrokerUnavailableError("no answer came")

    def retentions(self, topics: Collection[str]) -> Mapping[str, TopicRetention]:
        return {topic: self.kept[topic] for topic in topics if topic in self.kept}

    def bytes_of(self, partitions: Collection[TopicPartition]) -> int | None:
        return self.size

    def first_at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """The timestamp of each record is 1000 times its offset."""
        first = -(-timestamp_ms // 1_000)
        return {at: first if first < self.logs[at][1] else -1 for at in partitions}

    def start_application(self) -> None:
        """Run the application: it counts all records, on top of the existing state, and stops."""
        for at in list(self.logs):
            if at.topic == "lines":
                self.offsets[at] = self.logs[at][1]
        for topic in (BETWEEN, CHANGELOG):
            self.write_to(topic)

    def write_to(self, topic: str) -> None:
        """Append records to a topic."""
        self.topics.setdefault(topic, 2)
        for number in (0, 1):
            at = TopicPartition(topic, number)
            self.logs[at] = (0, self.logs.get(at, (0, 0))[1] + 3)


def chosen() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").to(lambda key, value, record: "errors")
    return builder.build()


def planned(cluster: Cluster, **allowed: bool) -> BootstrapPlan:
    return make_plan("app:topology", word_count(), APP, CONFIG, cluster, BootstrapAllowances(**allowed))[0]


def at_step(cluster: Cluster, step: Step, **allowed: bool) -> BootstrapPlan:
    """Return a plan for which all steps up to ``step`` are done."""
    plan = replace(planned(cluster, **allowed), step=Step.RUNNING)
    prepare(plan, cluster)
    if step is Step.RUNNING:
        return plan
    for number in (0, 1):
        cluster.logs[TopicPartition(CHANGELOG, number)] = (0, 4)
    places = [TopicPartition(topic, number) for topic in (CHANGELOG, BETWEEN) for number in (0, 1)]
    summaries = [TaskSummary(number, 5, 0, {"lines": (5, "text")}) for number in (0, 1)]
    sums = {f"{CHANGELOG}-{number}": (4, 99) for number in (0, 1)}
    return replace(written(plan, sums, [], summaries, cluster.ends(places), {}), step=step)
