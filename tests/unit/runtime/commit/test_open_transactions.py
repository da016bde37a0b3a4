"""Which transactions are ended from outside, when, and how."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskMigratedError, UnsupportedOperationError
from streams_py.ports.described_transactions import OpenTransaction, TransactionInfo
from streams_py.runtime.commit.open_transactions import (
    OpenTransactions,
    is_of_application,
    may_be_committed,
    was_committed,
)
from tests.support.runtime.world import World, tp

UUID = "01234567-89ab-cdef-0123-456789abcdef"
OTHER = "fedcba98-7654-3210-fedc-ba9876543210"
OURS = f"app-{UUID}-1"
OFFSETS = "__consumer_offsets"


class Cluster:
    """Open transactions and coordinators. Taking over an id ends a transaction in the state Ongoing."""

    def __init__(self, *open_: OpenTransaction) -> None:
        self.open = set(open_)
        self.known: dict[str, TransactionInfo] = {}
        self.ended: list[tuple[Any, ...]] = []
        self.asked: list[set[TopicPartition]] = []
        self.refuses: StreamsError | None = None
        self.too_old = False

    def check_brokers(self) -> None:
        if self.too_old:
            raise UnsupportedOperationError("these brokers are of version 2.4")

    def open_transactions(self, partitions: Collection[TopicPartition]) -> Sequence[OpenTransaction]:
        self.asked.append(set(partitions))
        return [one for one in sorted(self.open) if one.partition in partitions]

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        return {one.producer_id: name for name, one in self.known.items() if one.producer_id in producer_ids}

    def describe(self, transactional_id: str) -> TransactionInfo | None:
        if self.refuses is not None:
            raise self.refuses
        return self.known.get(transactional_id)

    def take_over(self, transactional_id: str, transaction_timeout_ms: int) -> tuple[int, int]:
        known = self.known[transactional_id]
        if known.state == "Ongoing":
            self.open = {one for one in self.open if one.partition not in known.partitions}
        self.ended.append(("taken over", transactional_id))
        return known.producer_id, known.epoch + 1

    def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        *,
        group: str | None,
        commit: bool,
    ) -> None:
        self.ended.append((commit, set(partitions), group))

    def close(self) -> None: ...


def left(partition: TopicPartition, *, epoch: int = 3, producer_id: int = 7) -> OpenTransaction:
    return OpenTransaction(partition, producer_id, epoch, 100)


def known(state: str, *partitions: TopicPartition, epoch: int = 3) -> TransactionInfo:
    return TransactionInfo(OURS, state, 7, epoch, frozenset(partitions))


def guard(world: World, cluster: Cluster, members: Collection[str] | None = None) -> OpenTransactions:
    return OpenTransactions(
        cluster,
        world.admin(),
        world.clock,
        application_id="app",
        topics={"out", "app-counts-changelog"},
        transaction_timeout_ms=30_000,
        members=lambda: members,
    )


@pytest.fixture
def world() -> World:
    return World(out=2, app_counts_changelog=2)


@pytest.mark.parametrize(
    ("coordinator", "committed"),
    [
        (known("CompleteCommit"), True),
        (known("CompleteAbort"), False),
        (known("CompleteAbort", epoch=4), False),  # it has timed out
        (known("CompleteCommit", epoch=4), False),  # that was the next producer
        (known("Empty", epoch=4), False),
        (known("Ongoing", tp("out-0")), False),
        (known("Ongoing", tp("out-1")), True),  # the one before
    ],
)
def test_outcome_is_what_the_coordinator_decided(coordinator: TransactionInfo, committed: bool) -> None:
    assert was_committed(coordinator, left(tp("out-0"))) is committed


@pytest.mark.parametrize(
    ("coordinator", "in_doubt"),
    [
        (known("CompleteCommit"), False),
        (known("CompleteAbort"), False),
        (known("CompleteAbort", epoch=4), False),
        (known("CompleteAbort", epoch=5), True),
        (known("CompleteCommit", epoch=4), True),  # as in Java: a commit ends an epoch
        (known("Empty", epoch=4), True),
        (known("Ongoing", tp("out-0")), False),
        (known("Ongoing", tp("out-0"), epoch=4), True),
    ],
)
def test_transaction_of_an_older_epoch_may_have_been_committed_by_a_member_in_java(
    world: World, coordinator: TransactionInfo, in_doubt: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert may_be_committed(coordinator, left(tp("out-1"))) is in_doubt
    cluster = Cluster(left(tp("out-1")))
    cluster.known[OURS] = coordinator
    looking = guard(world, cluster, [])
    for _ in range(4):
        looking.check_soon()
        looking.check()
        assert "find-hanging" not in caplog.text  # another process may be ending it
        world.clock.sleep_ms(1_000)
        cluster.open -= {left(tp("out-1"))} if cluster.ended else set()
    world.clock.sleep_ms(10_000)
    looking.check()
    told = "find-hanging" in caplog.text
    assert (("taken over", OURS) in cluster.ended) is not in_doubt  # it would take over ids that other members use
    ended = [entry for entry in cluster.ended if entry[0] != "taken over"]
    assert told is in_doubt
    assert ended == ([] if in_doubt else [(was_committed(coordinator, left(tp("out-1"))), {tp("out-1")}, "app")])


@pytest.mark.parametrize(
    "other", [f"app-eu-{UUID}-1", f"app{UUID}-1", "app-1", f"app-{UUID}", f"app-{UUID}-x", f"xapp-{UUID}-1", "", UUID]
)
def test_only_ids_of_this_application_are_ended(other: str) -> None:
    assert is_of_application(OURS, "app")
    assert not is_of_application(other, "app")
    assert not is_of_application(OURS.replace("app", "axp"), "a.p")


@pytest.mark.parametrize(("state", "epoch", "commit"), [("CompleteCommit", 3, True), ("CompleteAbort", 4, False)])
def test_producer_ends_what_hangs_under_its_id_before_it_begins(
    world: World, state: str, epoch: int, commit: bool
) -> None:
    cluster = Cluster(left(tp("out-0")), left(tp("app-counts-changelog-1")), left(tp("out-1"), producer_id=8))
    cluster.known[OURS] = known(state, epoch=epoch)
    guard(world, cluster).settle(OURS)
    assert cluster.ended == [("taken over", OURS), (commit, {tp("out-0"), tp("app-counts-changelog-1")}, "app")]


def test_what_hung_is_called_ended_when_its_markers_are_written(world: World, caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Cluster):
        """Answers EndTxn with the decision, as brokers do, and writes the markers during the next requests."""

        looks = 3

        def end(self, *args: Any, **kwargs: Any) -> None:
            super().end(*args, **kwargs)
            self.known[OURS] = known("PrepareCommit", epoch=4)

        def describe(self, transactional_id: str) -> TransactionInfo | None:
            if self.known[OURS].state == "PrepareCommit":
                assert "it is now committed" not in caplog.text
                self.looks -= 1
                if not self.looks:
                    self.known[OURS] = known("CompleteCommit", epoch=4)
                    self.open.clear()
            return super().describe(transactional_id)

    cluster = Slow(left(tp("out-0")))
    cluster.known[OURS] = known("CompleteCommit")
    guard(world, cluster).settle(OURS)
    assert cluster.open == set()
    assert "it is now committed" in caplog.text


def test_ongoing_transaction_is_ended_by_its_coordinator_alone(world: World) -> None:
    cluster = Cluster(left(tp("out-0")))
    cluster.known[OURS] = known("Ongoing", tp("out-0"))
    guard(world, cluster).settle(OURS)
    assert cluster.ended == [("taken over", OURS)]


class Shared(Cluster):
    """Its coordinator forgets how transactions ended when an id is taken over, as real ones do."""

    def take_over(self, transactional_id: str, transaction_timeout_ms: int) -> tuple[int, int]:
        producer = super().take_over(transactional_id, transaction_timeout_ms)
        self.known[transactional_id] = known("Empty", epoch=producer[1])
        return producer


def test_id_is_taken_over_by_one_member_and_the_others_wait(world: World, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Shared(left(tp("out-0")))
    cluster.known[OURS] = known("CompleteCommit")
    first, second = guard(world, cluster, []), guard(world, cluster, [])
    ends = cluster.end

    def meanwhile(*args: Any, **kwargs: Any) -> None:
        second.check_soon()
        second.check()
        with pytest.raises(BrokerUnavailableError, match="another member"):
            second.settle(OURS)  # it would fence the first one, and abort its committed transaction
        ends(*args, **kwargs)
        cluster.open.clear()

    cluster.end = meanwhile  # type: ignore[method-assign]
    for looking in (first, second):
        looking.check_soon()
        looking.check()
    world.clock.sleep_ms(1_000)
    first.check()
    assert cluster.ended == [("taken over", OURS), (True, {tp("out-0")}, "app")]
    world.clock.sleep_ms(60_000)
    second.check()
    second.settle(OURS)
    assert "find-hanging" not in caplog.text


@pytest.mark.parametrize("error", [BrokerUnavailableError("it died"), TaskMigratedError("taken over")])
def test_who_has_taken_an_id_over_remembers_how_it_ended_until_it_is(world: World, error: StreamsError) -> None:
    cluster = Shared(left(tp("out-0")))
    cluster.known[OURS] = known("CompleteCommit")
    looking = guard(world, cluster)
    ends = cluster.end

    def fails(*_: Any, **__: Any) -> None:
        raise error

    cluster.end = fails  # type: ignore[method-assign]
    with pytest.raises(BrokerUnavailableError):
        looking.settle(OURS)
    cluster.end = ends  # type: ignore[method-assign]
    looking.settle(OURS)
    assert cluster.ended[-1] == (True, {tp("out-0")}, "app")


def test_who_restores_something_else_meanwhile_remembers_it_too(world: World) -> None:
    cluster = Shared(left(tp("out-0")))
    cluster.known[OURS] = known("CompleteCommit")
    looking = guard(world, cluster)
    looking.watch(restores := Restores(tp("app-counts-changelog-0")))
    ends = cluster.end

    def fails(*_: Any, **__: Any) -> None:
        raise BrokerUnavailableError("it died")

    cluster.end = fails  # type: ignore[method-assign]
    with pytest.raises(BrokerUnavailableError):
        looking.settle(OURS)
    looking.check()
    assert cluster.asked[-1] == restores.restoring()
    cluster.end = ends  # type: ignore[method-assign]
    looking.settle(OURS)
    assert cluster.ended[-1] == (True, {tp("out-0")}, "app")


@pytest.mark.parametrize(("state", "remembers"), [("CompleteCommit", True), ("Ongoing", False)])
def test_how_it_ended_is_remembered_when_the_answer_to_taking_over_gets_lost(
    world: World, state: str, remembers: bool
) -> None:
    """The current state does not show it: the producer may have continued, if the request was lost."""
    cluster = Shared(left(tp("out-0")))
    cluster.known[OURS] = known(state, *(() if remembers else (tp("out-0"),)))
    looking = guard(world, cluster)
    takes = cluster.take_over

    def loses(*args: Any) -> tuple[int, int]:
        is_open = set(cluster.open)
        takes(*args)
        cluster.open = is_open
        raise BrokerUnavailableError("it died")

    cluster.take_over = loses  # type: ignore[method-assign]
    with pytest.raises(BrokerUnavailableError):
        looking.settle(OURS)
    cluster.take_over = takes  # type: ignore[method-assign]
    if remembers:
        looking.settle(OURS)
        assert cluster.ended[-1] == (True, {tp("out-0")}, "app")
    else:
        with pytest.raises(BrokerUnavailableError, match="another member"):
            looking.settle(OURS)


def test_producer_that_has_waited_once_waits_for_others_again(world: World) -> None:
    cluster = Cluster(left(tp("out-0")))
    cluster.known[OURS] = known("Empty", epoch=4)
    looking = guard(world, cluster)
    with pytest.raises(BrokerUnavailableError, match="another member"):
        looking.settle(OURS)
    cluster.open.clear()  # the others have ended it
    looking.settle(OURS)
    world.clock.sleep_ms(60_000)
    cluster.open.add(left(tp("out-1")))
    with pytest.raises(BrokerUnavailableError, match="another member"):
        looking.settle(OURS)


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "CompleteCommit"])
def test_producer_waits_for_others_that_end_what_it_has_left_open_and_begins_when_nobody_does(
    world: World, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    """The last state also only describes a later transaction."""
    cluster = Cluster(left(tp("out-0")))
    cluster.known[OURS] = known(state, epoch=4)
    looking = guard(world, cluster)
    for _ in range(10):
        with pytest.raises(BrokerUnavailableError, match="another member"):
            looking.settle(OURS)
        world.clock.sleep_ms(1_000)
    for _ in range(2):
        looking.settle(OURS)
    assert cluster.ended == []  # whether it was committed is unknown
    (told,) = [record.getMessage() for record in caplog.records]
    assert "out-0" in told
    assert "find-hanging" in told


def test_subjects_of_very_many_warnings_are_forgotten(world: World, caplog: pytest.LogCaptureFixture) -> None:
    warn = guard(world, Cluster())._warn_once  # ten thousand transactions are too many for a test
    _ = [warn(name, "told") for name in (*range(10_001), 10_000, 0)]
    assert len(caplog.records) == 10_002


def test_what_was_committed_is_ended_before_what_was_not(world: World) -> None:
    cluster = Shared(left(tp("out-0")), left(tp("out-1")))
    cluster.known[OURS] = known("Ongoing", tp("out-0"))
    cluster.take_over = lambda *_: (7, 5)  # type: ignore[method-assign]  # and the broker forgets its markers
    guard(world, cluster).settle(OURS)
    assert cluster.ended == [(True, {tp("out-1")}, None), (False, {tp("out-0")}, None)]


class Restores:
    """A state updater that waits for the end of a changelog."""

    def __init__(self, changelog: TopicPartition) -> None:
        self._changelog = changelog

    def restoring(self) -> set[TopicPartition]:
        return {self._changelog}


def test_new_id_and_one_with_nothing_open_are_left_alone(world: World) -> None:
    cluster = Cluster(left(tp("out-0"), producer_id=8))
    guard(world, cluster).settle(OURS)
    cluster.known[OURS] = known("CompleteAbort")
    guard(world, cluster).settle(OURS)
    assert cluster.ended == []


def test_restoration_waits_a_second_for_an_open_transaction_and_others_for_the_timeout(world: World) -> None:
    cluster = Cluster(left(tp("app-counts-changelog-0")), left(tp("out-1"), producer_id=8))
    cluster.known[OURS] = known("CompleteAbort", epoch=4)
    cluster.known[f"app-{UUID}-2"] = TransactionInfo(f"app-{UUID}-2", "CompleteCommit", 8, 3, frozenset())
    looking = guard(world, cluster)
    updater = Restores(tp("app-counts-changelog-0"))
    looking.watch(updater)
    looking.check()
    assert cluster.asked == [{tp("app-counts-changelog-0")}]
    world.clock.sleep_ms(999)
    looking.check()
    assert cluster.ended == []
    world.clock.sleep_ms(1)
    looking.check()
    assert cluster.ended[-1] == (False, {tp("app-counts-changelog-0")}, "app")
    cluster.open.discard(left(tp("app-counts-changelog-0")))
    cluster.ended.clear()
    world.clock.sleep_ms(10_000)
    looking.check()  # the first check of all transactions
    world.clock.sleep_ms(39_999)
    looking.check()
    assert cluster.ended == []
    world.clock.sleep_ms(10_000)
    looking.check()
    assert cluster.ended[-1] == (True, {tp("out-1")}, "app")


@pytest.mark.parametrize(
    ("members", "ends"),
    [([OTHER], True), ([], True), ([OTHER, UUID], False), (None, False)],
    ids=["dead", "everybody is dead", "alive", "not known"],
)
def test_what_a_process_without_a_member_has_left_open_is_ended_soon_after_the_rebalance(
    world: World, members: list[str] | None, ends: bool
) -> None:
    cluster = Cluster(left(tp("out-0")))
    cluster.known[OURS] = known("Ongoing", tp("out-0"))
    looking = guard(world, cluster, members)
    looking.check_soon()
    looking.check()
    assert len(cluster.asked) == 1
    world.clock.sleep_ms(999)
    looking.check()
    assert cluster.ended == []
    world.clock.sleep_ms(1)
    looking.check()
    assert cluster.ended == ([("taken over", OURS)] if ends else [])
    asked = len(cluster.asked)
    world.clock.sleep_ms(9_999)
    looking.check()
    assert len(cluster.asked) == asked  # from now on at the same long interval as before


def test_transaction_that_moves_on_is_never_late(world: World) -> None:
    cluster = Cluster()
    cluster.known[OURS] = known("Ongoing", tp("out-0"))
    looking = guard(world, cluster)
    for start in range(20):
        cluster.open = {left(tp("out-0"))._replace(start=start)}
        world.clock.sleep_ms(10_000)
        looking.check()
    assert len(cluster.asked) == 20
    assert cluster.ended == []


def test_open_transaction_of_somebody_else_is_told_once_and_left_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(left(tp("out-0")), left(tp("out-1"), producer_id=9))
    cluster.known["bank"] = TransactionInfo("bank", "CompleteAbort", 7, 4, frozenset())
    looking = guard(world, cluster)
    with caplog.at_level(logging.WARNING):
        for _ in range(8):
            world.clock.sleep_ms(10_000)
            looking.check()
    assert cluster.ended == []
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "bank (producer 7)" in told[0]
    assert "out-0" in told[0]
    assert "producer 9" in told[1]


def test_missing_rights_are_told_once_with_the_remedy_and_the_producer_begins(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(left(tp("out-0")))
    cluster.refuses = StreamsError("not allowed")
    looking = guard(world, cluster)
    for _ in range(3):
        looking.settle(OURS)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "not allowed" in told
    assert "find-hanging" in told


def test_producer_does_not_begin_on_brokers_that_are_too_old(world: World) -> None:
    cluster = Cluster(left(tp("out-0")))
    cluster.known[OURS] = known("CompleteCommit")
    cluster.too_old = True
    with pytest.raises(UnsupportedOperationError, match=r"2\.4"):
        guard(world, cluster).settle(OURS)
    assert cluster.ended == []


def test_producer_does_not_wait_for_a_question_that_has_no_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams_py.runtime.commit.open_transactions._LOCK_TIMEOUT_S", 0.01)
    asked, answers = threading.Event(), threading.Event()

    class Silent(Cluster):
        def open_transactions(self, partitions: Collection[TopicPartition]) -> Sequence[OpenTransaction]:
            asked.set()
            assert answers.wait(60)
            return []

    looking = guard(world, Silent())
    updater = Restores(tp("out-0"))
    looking.watch(updater)
    looks = threading.Thread(target=looking.check)
    looks.start()
    assert asked.wait(60)
    with pytest.raises(BrokerUnavailableError):
        looking.settle(OURS)
    answers.set()
    looks.join(60)
    looking.settle(OURS)
