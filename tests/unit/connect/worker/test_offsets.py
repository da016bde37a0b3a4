"""Reading and changing offsets of connectors (KIP-875): sources, sinks, and refused requests."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from streams_protocol.types import TopicPartition
from streams_py.connect.api import Connector as AnyConnector
from streams_py.connect.api import JsonMap
from streams_py.connect.errors import BadRequestError
from streams_py.connect.policy.worker_policy import LoadedConnector
from streams_py.connect.rest.app import rest_app
from streams_py.connect.stores.offsets import OffsetStore, offset_key
from streams_py.connect.worker.offsets import ConnectorOffsets, sink_group
from tests.support.connect.memory_herder import Connector, Group, MemoryHerder
from tests.support.connect.memory_log import MemoryLog
from tests.support.connect.plugins import CollectingSink, CountingSource

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Groups:
    """Consumer groups in memory."""

    def __init__(self) -> None:
        self.positions: dict[str, dict[TopicPartition, int]] = {}

    @contextlib.contextmanager
    def sink_offsets(self) -> Iterator[Groups]:
        yield self

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        return dict(self.positions.get(group, {}))

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.positions.setdefault(group, {}).update(offsets)

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            del self.positions[group][partition]

    def delete_group(self, group: str) -> None:
        self.positions.pop(group, None)


class Told(CountingSource):
    """Keeps offsets outside Kafka as well; refuses negative counts."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def alter_offsets(self, props: Mapping[str, str], offsets: Sequence[tuple[JsonMap, JsonMap | None]]) -> bool:
        if any(offset is not None and offset["count"] < 0 for _, offset in offsets):
            raise ValueError("count must not be negative")
        self.told += offsets
        return True


class Bench:
    def __init__(self) -> None:
        self.groups = Groups()
        self.log = MemoryLog()
        self.store = OffsetStore(self.log, 1)  # type: ignore[arg-type]  # a log without a topic
        self.store.start()
        self.offsets = ConnectorOffsets(self.store, self.groups)  # type: ignore[arg-type]  # what it uses of the clients


@pytest.fixture
def bench() -> Bench:
    return Bench()


def loaded(connector: AnyConnector, given: Mapping[str, str] | None = None, **props: str) -> LoadedConnector:
    return LoadedConnector(connector, given or {}, props)


def test_offsets_of_a_source_are_changed_one_by_one_and_removed(bench: Bench) -> None:
    bench.store.write({offset_key("a", {"part": n}): {"count": 5} for n in "01"}, 1)
    bench.store.write({offset_key("b", {"part": "0"}): {"count": 9}}, 1)
    source = CountingSource()
    assert bench.offsets.alter("a", loaded(source), [({"part": "0"}, {"count": 2}), ({"part": "1"}, None)]) is False
    assert bench.offsets.read("a", source) == [({"part": "0"}, {"count": 2})]
    assert bench.offsets.reset("a", loaded(source)) is False
    assert bench.offsets.read("a", source) == []
    assert bench.offsets.read("b", source) == [({"part": "0"}, {"count": 9})]
    assert bench.log.records[-1] == (offset_key("a", {"part": "0"}), None)


def test_connector_checks_changes_before_they_are_written_and_says_that_it_made_them_too(bench: Bench) -> None:
    source = Told()
    with pytest.raises(BadRequestError, match="ValueError: count must not be negative"):
        bench.offsets.alter("a", loaded(source), [({"part": "0"}, {"count": -1})])
    assert bench.log.records == []
    assert bench.offsets.alter("a", loaded(source), [({"part": "0"}, {"count": 1})]) is True
    assert bench.offsets.reset("a", loaded(source)) is True
    assert source.told == [({"part": "0"}, {"count": 1}), ({"part": "0"}, None)]


class Quoting(CountingSource):
    """A connector that quotes resolved placeholders when it refuses offsets."""

    def alter_offsets(self, props: Mapping[str, str], offsets: Sequence[tuple[JsonMap, JsonMap | None]]) -> bool:
        raise ConnectionError(f"cannot log in at {props['url']} with {props['login.password']}")


def test_connector_gets_the_values_of_placeholders_and_its_refusal_does_not_show_them(bench: Bench) -> None:
    one = loaded(Quoting(), {"url": "${env:URL}"}, url="resolved-secret", **{"login.password": "literal-secret"})
    bench.store.write({offset_key("a", {"part": "0"}): {"count": 5}}, 1)
    for change in (
        lambda: bench.offsets.alter("a", one, [({"part": "0"}, {"count": 2})]),
        lambda: bench.offsets.reset("a", one),
    ):
        with pytest.raises(BadRequestError, match=r"cannot log in at \[hidden\] with \[hidden\]"):
            change()


def test_offsets_of_a_sink_are_those_of_its_consumer_group(bench: Bench) -> None:
    sink = CollectingSink()
    bench.groups.positions[sink_group("s")] = {T1: 7, T0: 5}
    bench.groups.positions["connect-other"] = {T0: 1}
    assert bench.offsets.read("s", sink) == [
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 5}),
        ({"kafka_topic": "t", "kafka_partition": 1}, {"kafka_offset": 7}),
    ]
    bench.offsets.alter(
        "s",
        loaded(sink),
        [
            ({"kafka_topic": "t", "kafka_partition": "0"}, {"kafka_offset": "2"}),  # text counts, as in Kafka Connect
            ({"kafka_topic": "t", "kafka_partition": 1}, None),
        ],
    )
    assert bench.groups.positions[sink_group("s")] == {T0: 2}
    bench.offsets.reset("s", loaded(sink))
    assert bench.groups.positions == {"connect-other": {T0: 1}}


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        ({"kafka_topic": "t"}, {"kafka_offset": 1}),
        ({"kafka_topic": 3, "kafka_partition": 0}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": -1}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": True}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": 0, "more": 1}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 2**63}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 1.5}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": None}),
    ],
)
def test_changes_that_no_sink_can_have_are_refused_whole(bench: Bench, partition: JsonMap, offset: JsonMap) -> None:
    good = ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 1})
    with pytest.raises(BadRequestError, match="of a sink must be"):
        bench.offsets.alter("s", loaded(CollectingSink()), [good, (partition, offset)])
    assert bench.groups.positions == {}


# -- the REST interface ------------------------------------------------------------------------------------------------


@pytest.fixture
def group() -> Group:
    return Group(connectors={"c": Connector({"name": "c"}), "d": Connector({"name": "d"})})


@pytest.fixture
def client(group: Group) -> TestClient:
    return TestClient(rest_app(MemoryHerder(group), rebalance_s=0.3))  # type: ignore[arg-type]  # a herder in memory


def test_answers_are_those_of_kafka_connect(client: TestClient, group: Group) -> None:
    body = {"offsets": [{"partition": {"file": "f"}, "offset": {"position": 3}}, {"partition": {}, "offset": None}]}
    answer = client.patch("/connectors/c/offsets", json=body)
    assert (answer.status_code, answer.json()) == (
        200,
        {"message": "The offsets for this connector have been altered successfully"},
    )
    assert group.done[-1][1] == "alter c [({'file': 'f'}, {'position': 3}), ({}, None)]"
    told = client.delete("/connectors/d/offsets").json()["message"]
    assert told.startswith("The Connect framework-managed offsets for this connector have been reset successfully.")
    assert client.delete("/connectors/none/offsets").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"offsets": []},
        {"offsets": {}},
        {"offsets": [1]},
        {"offsets": [{"partition": {}}]},
        {"offsets": [{"partition": 1, "offset": {}}]},
        {"offsets": [{"partition": {}, "offset": 1}]},
        {"offsets": [{"partition": {}, "offset": {}}, {"partition": {}, "offset": None}]},
        {"offsets": [{"partition": {}, "offset": {}}], "more": 1},
    ],
)
def test_bodies_of_another_shape_are_refused(client: TestClient, group: Group, body: Any) -> None:
    assert client.patch("/connectors/c/offsets", json=body).status_code == 400
    assert group.done == []
