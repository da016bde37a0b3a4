"""A simulated Kafka for one application instance, and a stream thread that the test moves step by step.

:class:`World` holds topics, committed offsets and an ordered diary of all client calls. Its clients implement the
runtime's ports. :class:`Steps` is an instance with one stream thread. The test calls its loop, state updater and group
membership step by step, on the test's own thread.

"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from streams_protocol.types import TaskId, TopicPartition
from streams_py import serdes
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    OffsetOutOfRangeError,
    TaskCorruptedError,
    TaskMigratedError,
)
from streams_py.ports import (
    BEGINNING,
    END,
    AdminError,
    AdminErrorKind,
    GroupAdmin,
    GroupMetadata,
    MembershipListener,
    OffsetAndMetadata,
    PartitionInfo,
    TopicCleanup,
    TopicSpec,
)
from streams_py.ports.described_transactions import OpenTransaction, TransactionInfo
from streams_py.runtime.group.inbox import Inbox
from streams_py.runtime.group.transport import TaskListener
from streams_py.runtime.restore.restoring_stores import RestoringStores
from streams_py.runtime.thread.states import ThreadState
from streams_py.runtime.thread.stream_thread import StreamThread
from streams_py.runtime.wiring.shared import SharedResources
from streams_py.runtime.wiring.stream_threads import StreamThreadFactory
from streams_py.testing.memory_clients import ManualClock, MemoryProducer, MemoryRecord
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.runtime.world_membership import WorldMembership
from tests.support.waiting import PATIENCE_S

T = TypeVar("T")


class World:
    """Topics with their records, the group's committed offsets, and the calls that were made."""

    def __init__(self, **topics: int) -> None:
        self.clock = ManualClock(1_000_000)
        self.topics = {name.replace("_", "-"): count for name, count in topics.items()}
        self.starts: dict[TopicPartition, int] = {}
        self.open_from: dict[TopicPartition, int] = {}
        """Start of an open transaction: consumers do not read beyond it."""
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.diary: list[tuple[Any, ...]] = []
        self.away = False
        """True: every request fails as if no broker answered."""
        self.group_generation: int | None = None  # the group's strategy, if it is not its member's
        self.memberships: dict[str, WorldMembership] = {}
        self.consumers: dict[str, WorldConsumer] = {}
        self.producers: dict[str, MemoryProducer] = {}
        self.open_clients: set[object] = set()
        self.topic_ids: dict[str, str] = {}
        self.cleanup: dict[str, TopicCleanup | AdminError] = {}
        self.cleanup_requests: list[list[str]] = []
        self.log = MemoryProducer(_Counts(self.topics), clock=self.clock)

    def write(self, topic: str, *values: bytes, partition: int = 0, key: bytes = b"k") -> None:
        for value in values:
            self.log.produce(topic, value, key, partition, None, self.clock.now_ms(), None)

    def records(self, partition: TopicPartition) -> list[MemoryRecord]:
        return self.log.records.get(partition, [])

    def names(self) -> list[str]:
        return [entry[0] for entry in self.diary]

    def check_there(self) -> None:
        if self.away:
            raise BrokerUnavailableError("no broker answers")

    # -- the port Clients ----------------------------------------------------------------------------------

    def main_consumer(self, thread_name: str) -> WorldConsumer:
        self.consumers[thread_name] = WorldConsumer(self)
        return self.consumers[thread_name]

    def restore_consumer(self, thread_name: str) -> WorldConsumer:
        return WorldConsumer(self)

    def changelog_sorter(self, thread_name: str) -> None:
        return None

    def global_consumer(self, client_id: str) -> WorldConsumer:
        return WorldConsumer(self)

    def producer(self, thread_name: str) -> WorldProducer:
        self.producers[thread_name] = made = WorldProducer(self)
        return made

    global_producer = producer

    def transactional_producer(self, thread_name: str, transactional_id: str) -> WorldTransactions:
        self.producers[thread_name] = made = WorldTransactions(self, transactional_id)
        return made

    def admin(self) -> WorldAdmin:
        return WorldAdmin(self)

    def check_connection(self) -> None:
        pass

    def transaction_admin(self) -> NothingOpen:
        return NothingOpen()

    def group_admin(self) -> GroupAdmin:
        return cast("GroupAdmin", WorldGroups(self))

    def membership(self, thread_name: str, thread_index: int, listener: MembershipListener) -> WorldMembership:
        self.memberships[thread_name] = WorldMembership(self, listener)
        return self.memberships[thread_name]

    def close(self) -> None:
        self.diary.append(("clients closed",))


class WorldGroups:
    """Removes members of ended processes. Has no other request, because no transaction is ever open."""

    def __init__(self, world: World) -> None:
        self._world = world

    def remove_dead_members(self, group: str, member_ids: Collection[str], reason: str) -> frozenset[str]:
        self._world.check_there()
        self._world.diary.append(("remove dead members", group, tuple(member_ids)))
        return frozenset(member_ids)

    def close(self) -> None:
        pass


class _Counts(dict[str, int]):
    """Current partition counts of a world's topics."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        super().__init__()
        self._topics = topics

    def __iter__(self) -> Any:
        return iter(self._topics)

    def get(self, key: str, default: Any = None) -> Any:
        return self._topics.get(key, default)


class WorldConsumer:
    """Reads the world's records immediately; never waits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.assigned: list[dict[TopicPartition, int | None]] = []
        world.open_clients.add(self)

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        unknown = [p for p, position in positions.items() if position is None and p not in self.positions]
        if unknown:
            raise IllegalStateError(f"{unknown[0]} is not assigned yet and needs a position")
        self.assigned.append(dict(positions))
        self.positions = {
            partition: self.positions[partition] if position is None else self._resolved(partition, position)
            for partition, position in positions.items()
        }
        self.paused &= self.positions.keys()

    def _resolved(self, partition: TopicPartition, position: int) -> int:
        if position == BEGINNING:
            return self._world.starts.get(partition, 0)
        return len(self._world.records(partition)) if position == END else position

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = self._resolved(partition, offset)

    def poll(self, max_records: int, timeout_ms: int) -> list[MemoryRecord]:
        gone = [p for p, at in self.positions.items() if at < self._world.starts.get(p, 0)]
        if gone:
            for partition in gone:
                self.positions[partition] = 1 << 60
            raise OffsetOutOfRangeError(gone, deleted=gone)
        found: list[MemoryRecord] = []
        for partition, at in sorted(self.positions.items()):
            if partition in self.paused or self._world.away:
                continue
            batch = self._readable(partition)[at : at + max_records - len(found)]
            self.positions[partition] = at + len(batch)
            found += batch
        return found

    def position(self, partition: TopicPartition) -> int | None:
        return self.positions.get(partition)

    def lag(self, partition: TopicPartition) -> int | None:
        at = self.positions.get(partition)
        return None if at is None else len(self._readable(partition)) - at

    def _readable(self, partition: TopicPartition) -> list[MemoryRecord]:
        return self._world.records(partition)[: self._world.open_from.get(partition)]

    def close(self) -> None:
        self._world.open_clients.discard(self)


class WorldProducer(MemoryProducer):
    """Writes to the world. Records that were not flushed are not acknowledged."""

    def __init__(self, world: World) -> None:
        super().__init__(_Counts(world.topics), clock=world.clock)
        self._world = world
        self.records = world.log.records
        self.flush_error: Exception | None = None
        self.resets = 0
        world.open_clients.add(self)

    def flush(self, timeout_ms: int) -> int:
        self._world.diary.append(("flush",))
        if self.flush_error is not None:
            error, self.flush_error = self.flush_error, None
            raise error
        return int(self._world.away)

    def reset(self) -> None:
        super().reset()
        self.resets += 1

    def partitions_for(self, topic: str) -> int:
        return self._world.topics[topic]

    def close(self) -> None:
        self._world.open_clients.discard(self)


class WorldTransactions(WorldProducer):
    """Records reach the world with the commit, or never. ``at`` is called at each step of a commit, and may raise."""

    def __init__(self, world: World, transactional_id: str) -> None:
        super().__init__(world)
        self.transactional_id = transactional_id
        self.is_ready = False
        self.at: Callable[[str], None] = lambda step: None
        self._waiting: list[tuple[Any, ...]] = []
        self.produce = self._wait

    def _wait(self, *record: Any) -> None:
        assert self.is_ready
        if self._halted is not None:
            raise TaskMigratedError(self._halted)
        self.at("produce")
        self._waiting.append(record)

    @property
    def in_transaction(self) -> bool:
        return bool(self._waiting)

    def initialize(self, timeout_ms: int) -> None:
        self._world.check_there()
        self._world.diary.append(("initialize",))
        self.is_ready = True

    def commit_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupMetadata, timeout_ms: int
    ) -> None:
        self._world.diary.append(("transaction", {p: at.offset for p, at in offsets.items()}, member.generation))
        self.at("commit")
        if offsets and self._world.group_generation not in (None, member.generation):
            raise TaskCorruptedError("the member has an old generation", {})
        for record in self._waiting:
            self._produce(*record)
        self._waiting = []
        self._world.committed.update(offsets)
        self.at("committed")

    def reset(self) -> None:
        super().reset()
        self._waiting = []
        self.is_ready = False


class NothingOpen:
    """A cluster without open transactions (port ``TransactionAdmin``)."""

    def check_brokers(self) -> None: ...

    def open_transactions(self, partitions: Collection[TopicPartition]) -> Sequence[OpenTransaction]:
        return []

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        return {}

    def describe(self, transactional_id: str) -> TransactionInfo | None:
        return None

    def take_over(self, transactional_id: str, transaction_timeout_ms: int) -> tuple[int, int]:
        raise AssertionError("nothing is open")

    def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        *,
        group: str | None,
        commit: bool,
    ) -> None:
        raise AssertionError("nothing is open")

    def close(self) -> None: ...


class WorldAdmin:
    """Answers from the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.open_clients.add(self)

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        self._world.check_there()
        topics = self._world.topics
        return {
            name: tuple(
                PartitionInfo(name, number, 1, (1,), frozenset(), self._world.topic_ids.get(name))
                for number in range(topics[name])
            )
            if name in topics
            else AdminError(AdminErrorKind.UNKNOWN_TOPIC, f"no topic {name}")
            for name in (topics if names is None else names)
        }

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        self._world.check_there()
        self._world.diary.append(("create", tuple(sorted(spec.name for spec in specs))))
        exists = AdminError(AdminErrorKind.ALREADY_EXISTS, "exists")
        return {spec.name: exists if spec.name in self._world.topics else self._create(spec) for spec in specs}

    def _create(self, spec: TopicSpec) -> None:
        self._world.topics[spec.name] = spec.partitions

    def list_offsets(
        self, partitions: Collection[TopicPartition], *, earliest: bool = False
    ) -> Mapping[TopicPartition, int | AdminError]:
        self._world.check_there()
        return {partition: self._offset_of(partition, earliest=earliest) for partition in partitions}

    def _offset_of(self, partition: TopicPartition, *, earliest: bool) -> int | AdminError:
        if partition.partition >= self._world.topics.get(partition.topic, 0):
            return AdminError(AdminErrorKind.UNKNOWN_TOPIC, f"no {partition}")
        return self._world.starts.get(partition, 0) if earliest else len(self._world.records(partition))

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        self._world.check_there()
        committed = self._world.committed
        return {p: committed[p].offset if p in committed else None for p in partitions}

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._world.diary.append(("delete records", dict(offsets)))
        self._world.starts.update(offsets)

    def delete_retention_ms(self, topics: Collection[str]) -> Mapping[str, int | AdminError | None]:
        self._world.check_there()
        return dict.fromkeys(topics)

    def cleanup(self, topics: Collection[str]) -> Mapping[str, TopicCleanup | AdminError]:
        self._world.check_there()
        self._world.cleanup_requests.append(sorted(topics))
        unknown = AdminError(AdminErrorKind.UNSUPPORTED, "topics have no configuration here")
        return {topic: self._world.cleanup.get(topic, unknown) for topic in topics}

    def cluster_id(self) -> str:
        self._world.check_there()
        return "world"

    def remove_member(self, group: str, instance_id: str, member_id: str) -> None:
        self._world.diary.append(("remove member", group, instance_id, member_id))

    def close(self) -> None:
        self._world.open_clients.discard(self)


# -- one thread, step by step ----------------------------------------------------------------------------------------


class DirectInbox(Inbox[TaskListener]):
    """Runs actions immediately on ``owner``: the test's thread is the stream thread."""

    owner: TaskListener

    def call(self, action: Callable[[TaskListener], T], *, timeout_ms: int) -> T:
        return action(self.owner)

    def post(self, action: Callable[[TaskListener], object]) -> None:
        action(self.owner)


class Steps:
    """An instance with one stream thread, which :meth:`turn` moves."""

    def __init__(self, world: World, topology: Topology, folder: Path, **config: Any) -> None:
        self.world = world
        self.waits_for_closing = True  # for the files of tasks that were taken away, before each turn
        settings = {
            "application.id": "app",
            "bootstrap.servers": "world:9092",
            "state.dir": str(folder),
            "dsl.store.suppliers.class": "in_memory",
            "commit.interval.ms": 1000,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        self.instance = SharedResources(topology, StreamsConfig.of(settings), world, world.clock)
        self.instance.topic_ids._start = lambda: None  # type: ignore[method-assign]  # the test calls its checks
        self.instance.open()
        self.states: list[ThreadState] = []
        self.errors: list[Exception] = []
        self.ended = False
        self.factory = StreamThreadFactory(self.instance, dict)
        self.thread = self.factory.new_thread(1, self)
        self.thread.inbox = inbox = DirectInbox()
        self.thread.control.go(ThreadState.STARTING)
        self.loop = self.thread._open()  # instead of the thread
        inbox.owner = self.loop.moves
        self.parts = self.loop.parts
        self.parts.transport.start()
        self.updater = self.parts.updater
        self.updater._start_thread = lambda: None  # type: ignore[method-assign]  # its rounds are called by the test
        self.membership = world.memberships[self.thread.name]
        self.consumer = world.consumers[self.thread.name]
        self.producer = world.producers[self.thread.name]
        self.restore_consumer = world.restore_consumer(self.thread.name)
        world.diary.clear()

    # -- as the owner of the thread

    def thread_changed(self, thread: StreamThread, new: ThreadState) -> None:
        self.states.append(new)

    def thread_failed(self, thread: StreamThread, error: Exception) -> None:
        self.errors.append(error)

    def thread_ended(self, thread: StreamThread) -> None:
        self.ended = True

    def stop_with_application(self) -> None: ...

    # -- steps

    def turn(self, times: int = 1) -> None:
        """Run a round of the state updater, then one iteration of the loop."""
        for _ in range(times):
            self.instance.topic_ids.check()
            self.restore()
            for thread in threading.enumerate() if self.waits_for_closing else ():
                if thread.name == "state-close":
                    thread.join(PATIENCE_S)
            self.loop.iterate()

    def restore(self) -> None:
        """Run a round of the state updater, if it has work."""
        if self.updater._table.changelogs:  # only the updater's own thread has a use for this
            self.updater._round(self.restore_consumer)  # instead of that thread

    def run(self, active: Mapping[TaskId, Collection[TopicPartition]], **more: Any) -> None:
        """Run a rebalance with this outcome, and iterate until every task runs."""
        self.membership.round(active, **more)
        self.turn(4)
        assert self.thread.state is ThreadState.RUNNING, self.thread.state

    def close(self) -> None:
        """End the loop, as ``shut_down`` does."""
        self.thread.shut_down()
        self.end()

    def end(self) -> None:
        """Run the steps after the loop."""
        clean = False
        try:
            self.loop.await_rebalance()
            clean = True
        except Exception as error:
            self.fail(error)
        self.thread._close(clean=clean)  # as the thread does after its loop

    def fail(self, error: Exception) -> None:
        """Do what the thread does with an error of its loop."""
        self.thread._fail(error)  # only the thread itself calls it

    def fail_restoration(self, task: RestoringStores, error: Exception) -> None:
        """Let the state updater meet an error of a task."""
        self.updater._fail(task, error)  # a store in memory has no errors of its own

    @property
    def tasks(self) -> dict[str, str]:
        return {f"{task.id}{'' if task.is_active else ' standby'}": task.state.value for task in self.parts.table.all()}


def tp(name: str) -> TopicPartition:
    """Return partition ``number`` of topic ``in``."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def task(name: str) -> TaskId:
    return TaskId.parse(name)


def copying() -> Topology:
    """``in`` -> ``out``, upper case."""
    builder = StreamsBuilder()
    upper = builder.stream("in", key=serdes.BYTES, value=serdes.STRING).map_values(str.upper)
    upper.to("out", key=serdes.BYTES, value=serdes.STRING)
    return builder.build()


def counting() -> Topology:
    """Counts the records of ``in`` by key into ``out``; changelog ``app-counts-changelog``."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    counts = stream.group_by_key(key=serdes.STRING, value=serdes.STRING).count(store="counts")
    counts.to_stream().to("out", key=serdes.STRING, value=serdes.INT64)
    return builder.build()
