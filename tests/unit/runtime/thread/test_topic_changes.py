"""Input, repartition and changelog topics that are deleted and recreated, while tasks run and before they start."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py import serdes
from streams_py.errors import OffsetOutOfRangeError, StreamsError
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.thread.states import ThreadState
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.runtime.world import Steps, World, copying, counting, task, tp

A = task("0_0")
ONE = {A: [tp("in-0")]}
GUARANTEES = pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])


@pytest.fixture
def world() -> World:
    made = World(**{"in": 1, "out": 1, "app-counts-changelog": 1, "app-step-repartition": 1})
    made.topic_ids.update(dict.fromkeys(made.topics, "first"))
    return made


def outputs(world: World) -> list[bytes | None]:
    return [record.value() for record in world.records(tp("out-0"))]


def create_again(world: World, topic: str, *values: bytes, id: str = "second") -> None:
    world.log.records[tp(f"{topic}-0")] = []
    world.topic_ids[topic] = id
    world.write(topic, *values)


def work(steps: Steps, times: int = 4) -> None:
    for _ in range(times):
        steps.world.clock.advance(1_100)
        steps.turn()


@GUARANTEES
@pytest.mark.parametrize("length", [0, 3, 10, 15], ids=lambda length: f"{length} new records")
def test_recreated_input_is_read_from_its_beginning(
    world: World, tmp_path: Path, guarantee: str, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, copying(), tmp_path, processing_guarantee=guarantee)
    world.write("in", *[b"old"] * 10)
    steps.run(ONE)
    work(steps)
    assert world.committed[tp("in-0")].offset == 10
    create_again(world, "in", *[b"%d" % number for number in range(length)])
    work(steps)
    world.write("in", b"last")
    work(steps)
    new = [value for value in outputs(world) if value != b"OLD"]
    assert new[-length - 1 :] == [b"%d" % number for number in range(length)] + [b"LAST"]
    assert world.committed[tp("in-0")].offset == length + 1
    assert caplog.text.count("topic in was deleted and created again (its id was first and is second)") == 1
    steps.close()


def test_position_of_an_empty_recreated_input_is_committed(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    world.write("in", *[b"old"] * 10)
    steps.run(ONE)
    work(steps)
    create_again(world, "in")
    work(steps)
    assert world.committed[tp("in-0")].offset == 0


@pytest.mark.parametrize("policy", ["latest", "none"])
def test_reset_policy_decides_only_whether_a_recreated_input_is_read(world: World, tmp_path: Path, policy: str) -> None:
    world.committed[tp("in-0")] = OffsetAndMetadata(0)
    steps = Steps(world, copying(), tmp_path, auto_offset_reset=policy)
    world.write("in", *[b"old"] * 3)
    steps.run(ONE)
    work(steps)
    create_again(world, "in", *[b"new"] * 5)
    if policy == "none":
        with pytest.raises(StreamsError, match=r"auto\.offset\.reset"):
            work(steps)
    else:
        work(steps)
        assert outputs(world)[-5:] == [b"NEW"] * 5


def test_position_that_a_log_does_not_have_waits_for_the_id_of_its_topic(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    world.write("in", *[b"old"] * 10)
    steps.run(ONE)
    work(steps)
    create_again(world, "in", *[b"new"] * 3)
    deliver = steps.consumer.poll

    def out_of_range(max_records: int, timeout_ms: int) -> list[object]:
        steps.consumer.poll = deliver  # type: ignore[method-assign]
        raise OffsetOutOfRangeError([tp("in-0")])

    steps.consumer.poll = out_of_range  # type: ignore[method-assign, assignment]
    work(steps)
    assert [value for value in outputs(world) if value != b"OLD"] == [b"NEW"] * 3


def test_truncated_log_of_the_same_topic_is_read_as_the_reset_policy_says(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, copying(), tmp_path, auto_offset_reset="latest")
    world.committed[tp("in-0")] = OffsetAndMetadata(0)
    world.write("in", *[b"old"] * 10)
    steps.run(ONE)
    work(steps)
    steps.parts.topic_changes.note_lost([tp("in-0")])
    work(steps)
    assert "offset out of range for in-0 (the log ends before it: truncated?); resuming at the end" in caplog.text
    assert "retention" not in caplog.text
    assert "created again" not in caplog.text


@GUARANTEES
def test_offset_committed_in_a_deleted_topic_is_not_used_when_the_task_comes_back(
    world: World, tmp_path: Path, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, copying(), tmp_path, processing_guarantee=guarantee)
    world.write("in", *[b"old"] * 3)
    steps.run(ONE)
    work(steps)
    steps.membership.round({})
    work(steps)
    create_again(world, "in", *[b"%d" % number for number in range(5)])
    steps.instance.topic_ids.watch("another thread", ["in"])
    work(steps)
    steps.membership.round(ONE)
    work(steps)
    assert outputs(world)[3:] == [b"0", b"1", b"2", b"3", b"4"]
    assert "topic in was deleted and created again" in caplog.text


def test_offset_that_another_member_committed_in_the_new_topic_is_used(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    world.write("in", *[b"old"] * 6)
    steps.run(ONE)
    work(steps)
    steps.membership.round({})
    work(steps)
    create_again(world, "in", *[b"%d" % number for number in range(5)])
    steps.instance.topic_ids.watch("another thread", ["in"])
    work(steps)
    world.committed[tp("in-0")] = OffsetAndMetadata(4)  # below the offsets known here, which are from another topic
    steps.membership.round(ONE)
    work(steps)
    assert outputs(world)[6:] == [b"4"]


@GUARANTEES
def test_state_on_disk_knows_in_which_topic_an_offset_was_committed(
    world: World, tmp_path: Path, guarantee: str
) -> None:
    options = {"dsl_store_suppliers_class": "rocksdb", "processing_guarantee": guarantee}
    steps = Steps(world, counting(), tmp_path, **options)
    world.write("in", *[b"old"] * 3)
    steps.run(ONE)
    work(steps)
    steps.close()
    steps.instance.directory.close()
    create_again(world, "in", *[b"new"] * 5)
    steps = Steps(world, counting(), tmp_path, **options)
    steps.membership.round(ONE)
    work(steps, 8)
    assert int.from_bytes(outputs(world)[-1] or b"", "big") == 8
    steps.close()
    steps.instance.directory.close()


def repartitioned() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    stream.repartition(name="step", partitions=1, key=serdes.BYTES, value=serdes.BYTES).to(
        "out", key=serdes.BYTES, value=serdes.BYTES
    )
    return builder.build()


@pytest.mark.parametrize("setting", ["stop", "strict", "continue"])
def test_recreated_repartition_topic_stops_the_application_unless_it_may_continue(
    world: World, tmp_path: Path, setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, repartitioned(), tmp_path, recreated_internal_topics=setting)
    steps.run({A: [tp("in-0")], task("1_0"): [tp("app-step-repartition-0")]})
    world.write("in", b"a", b"b")
    work(steps)
    create_again(world, "app-step-repartition", b"c", b"d", b"e")
    if setting == "continue":
        work(steps)
        assert outputs(world)[-3:] == [b"c", b"d", b"e"]
        assert "records that were not processed before are lost. Continuing" in caplog.text
    else:
        with pytest.raises(StreamsError, match=r"app-step-repartition .* recreated\.internal\.topics=continue"):
            work(steps)


@GUARANTEES
@pytest.mark.parametrize("length", [0, 2, 50])
def test_changelog_recreated_under_its_task_is_an_error_and_the_store_stays_complete(
    world: World, tmp_path: Path, guarantee: str, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    options = {
        "dsl_store_suppliers_class": "rocksdb",
        "processing_guarantee": guarantee,
        "statestore_cache_max_bytes": 0,
    }
    steps = Steps(world, counting(), tmp_path, **options)
    world.write("in", *[b"x"] * 10)
    steps.run(ONE)
    work(steps)
    world.log.records[tp("app-counts-changelog-0")] = []
    world.topic_ids["app-counts-changelog"] = "second"
    world.write("in", *[b"x"] * length)
    work(steps)
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1
    assert "changelog app-counts-changelog-0" in said[0]
    assert "Store counts is complete on this instance" in said[0]
    for _ in range(2):  # and after a restart
        world.write("in", b"x")
        work(steps)
        steps.close()
        steps.instance.directory.close()
        steps = Steps(world, counting(), tmp_path, **options)
        steps.membership.round(ONE)
        work(steps, 8)
        assert steps.thread.state is ThreadState.RUNNING
    assert int.from_bytes(outputs(world)[-1] or b"", "big") == 12 + length
    steps.close()
    steps.instance.directory.close()


def test_table_starts_over_when_the_topic_that_is_its_changelog_was_recreated(world: World, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.table("in", key=serdes.BYTES, value=serdes.BYTES, store="table")
    topology = builder.build({"topology.optimization": "all"})
    steps = Steps(world, topology, tmp_path, dsl_store_suppliers_class="rocksdb")
    world.write("in", b"old", key=b"gone")
    world.write("in", b"old", key=b"kept")
    steps.run(ONE)
    work(steps)
    world.log.records[TopicPartition("in", 0)] = []
    world.topic_ids["in"] = "second"
    world.write("in", b"new", key=b"kept")
    world.write("in", b"new", key=b"added")
    work(steps, 10)
    (running,) = steps.parts.table.running()
    rows = {key: row.value for key, row in running.stores.store("table").all()}
    assert rows == {b"kept": b"new", b"added": b"new"}
    steps.close()
