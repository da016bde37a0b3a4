"""Finds transactions of this application that their producers have left open, and ends them.

A consumer with ``isolation.level=read_committed`` cannot read past the oldest open transaction of a partition. Two
kinds of transactions stay open longer than their producer needs:

* **Transactions of a killed member** stay open until ``transaction.timeout.ms`` has elapsed. The next owner of its
  tasks does not have to wait. If this member restores a changelog with another member's open transaction, that member
  is a former owner. Taking over its transactional id ends the transaction, and fences the former owner if it is a
  zombie. A member without state is dead if its process no longer has a member in the group. Such a member can no longer
  commit, so its transactions are ended.
* **Hanging transactions** stay open forever. A broker that is killed and restarted continues the transactions in its
  log. It may consider a transaction ended while it does not know the transaction's partitions yet, and then writes no
  markers (seen with Apache Kafka 4.3.1, also for committed transactions). Such a transaction is ended again, with the
  same id and the same outcome.

The coordinator knows the state and the epoch of the last transaction of an id. They determine the outcome of an open
transaction (:func:`was_committed`), unless the id has been used since. :meth:`OpenTransactions.settle` determines the
outcome for a producer's own id before the producer starts. :meth:`OpenTransactions.check` does so for other ids.

To end a transaction, a member takes over its id, which counts as a use. The coordinator then no longer knows how the
earlier transactions of the id ended. So a member takes over an id only if it knows the outcome of an open transaction.
It remembers the outcomes until the transactions are ended. Other members that see the same transaction wait.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from streams_protocol.types import TopicPartition
from streams_py.assignment.java_order import string_hash
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskMigratedError
from streams_py.ports import Admin, AdminError, Clock, PartitionInfo, TransactionAdmin
from streams_py.ports.described_transactions import OpenTransaction, TransactionInfo

_log = logging.getLogger("streams_py")

_OFFSETS_TOPIC = "__consumer_offsets"
_INTERVAL_S = 0.5
_LOCK_TIMEOUT_S = 2.0
_ENDING_MS = 5_000
_ENDING_PAUSE_MS = 50
_RESTORE_PATIENCE_MS = 1_000
"""Time that a transaction may delay a restoration, in ms. Markers that are on their way arrive within this time."""
_FULL_CHECK_MS = 10_000
"""Interval between checks of all partitions, and the extra time after a transaction's timeout before acting; in ms."""
_REMEDY = (
    "`kafka-transactions.sh find-hanging` lists such transactions and `abort` ends them. A transaction that the "
    "coordinator reports as CompleteCommit was committed: `abort` would lose its records"
)

_WARNED_MAX = 10_000
_PROCESS_ID_CHARACTERS = 36
_PROCESS_ID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def is_of_application(transactional_id: str, application_id: str) -> bool:
    """Whether a stream thread of this application, in Python or Java, created the id."""
    return re.fullmatch(f"{re.escape(application_id)}-{_PROCESS_ID}-[0-9]+", transactional_id) is not None


def may_be_committed(known: TransactionInfo, left: OpenTransaction) -> bool:
    """Whether :func:`was_committed` is only reliable for this library's producers.

    Java's producers get a new epoch for each transaction (KIP-890, part 2). There a transaction of an older epoch than
    the coordinator's may have been committed.
    """
    aborted = known.state == "CompleteAbort" and known.epoch == left.epoch + 1
    return left.epoch < known.epoch and not aborted


def _process_of(transactional_id: str) -> str:
    return transactional_id.rpartition("-")[0][-_PROCESS_ID_CHARACTERS:]


def was_committed(known: TransactionInfo, left: OpenTransaction) -> bool:
    """Whether an open transaction was committed, according to the coordinator's state of its id.

    This library's producers never continue after an abort (nor do Kafka Streams' after a failure). So within an
    epoch, all transactions but the last one were committed. A higher epoch means that the producer was fenced before it
    committed.
    """
    if left.epoch != known.epoch:
        return False
    if known.state == "Ongoing":
        return left.partition not in known.partitions
    return known.state == "CompleteCommit"


class Restoring(Protocol):
    """A component that restores changelogs, and so waits for open transactions in them."""

    def restoring(self) -> Collection[TopicPartition]:
        """Return the changelogs that are being restored. Thread-safe."""


class OpenTransactions:
    """Finds and ends the application's open transactions. One object per client.

    Args:
        topics: Topics that the application writes to; their partitions are checked.
        members: Returns the process ids of the group's current members; None if they are not known, or during a
            rebalance.
    """

    def __init__(
        self,
        client: TransactionAdmin,
        admin: Admin,
        clock: Clock,
        *,
        application_id: str,
        topics: Collection[str],
        transaction_timeout_ms: int,
        members: Callable[[], Collection[str] | None],
    ) -> None:
        self._client = client
        self._members = members
        self._admin = admin
        self._clock = clock
        self._application_id = application_id
        self._topics = frozenset(topics)
        self._timeout_ms = transaction_timeout_ms
        self._lock = threading.Lock()  # guards the client
        self._watching = threading.Lock()  # guards the updaters
        self._updaters: weakref.WeakSet[Restoring] = weakref.WeakSet()
        self._seen: dict[OpenTransaction, int] = {}  # first seen at, in ms
        self._outcomes: dict[OpenTransaction, bool] = {}
        """Outcomes of transactions whose id this client took over (True: committed). The coordinator has lost them."""
        self._left_to_others: dict[str, int] = {}  # ids that another member seems to be ending, and since when in ms
        self._warned: dict[object, None] = {}  # the newest
        self._next_full_ms = clock.monotonic_ms() + _FULL_CHECK_MS
        self._extra_checks = 0  # number of full checks that follow soon
        self._stop = threading.Event()

    # -- before a producer starts ----------------------------------------

    def settle(self, transactional_id: str) -> None:
        """End the open transactions of an id that is about to be used.

        Other refusals than those below are logged, and the producer starts nevertheless.

        Raises:
            BrokerUnavailableError: The caller must try again.
            UnsupportedOperationError: The brokers are too old for transactions.
        """
        with self._exclusively():
            self._client.check_brokers()
        try:
            with self._exclusively():
                self._settle(transactional_id, is_ours=True)
        except BrokerUnavailableError:
            raise
        except StreamsError as error:
            self._warn_once(
                "settle",
                f"cannot determine whether transactions of {transactional_id} hang: {error}. If consumers with "
                f"isolation.level=read_committed make no progress: {_REMEDY}",
            )

    def _settle(self, transactional_id: str, *, is_ours: bool) -> None:
        known = self._decided(transactional_id)
        if known is None:
            return
        left = [one for one in self._open(self._all_partitions()) if one.producer_id == known.producer_id]
        names = ", ".join(str(one.partition) for one in sorted(left))
        outcomes = {one: outcome for one in left if (outcome := self._outcome(known, one, is_ours)) is not None}
        if left and not outcomes:
            self._leave_to_others(transactional_id, names, is_ours=is_ours)
            return
        self._left_to_others.pop(transactional_id, None)
        if not left:
            return
        # Remember the outcomes first: the answer may get lost. An undecided transaction may still end otherwise.
        self._outcomes |= {one: how for one, how in outcomes.items() if how or known.state != "Ongoing"}
        try:
            producer = self._client.take_over(transactional_id, self._timeout_ms)
            self._outcomes |= outcomes
            before = frozenset(left)
            left = [one for one in self._open({one.partition for one in before}) if one in before]
            if not left:
                _log.info(
                    "ended a transaction that %s had left open; it had delayed readers of %s", transactional_id, names
                )
                return
            is_same = producer[0] == known.producer_id
            decided = {one.partition: outcomes[one] for one in left if is_same and one in outcomes}
            if len(decided) < len(left):
                self._warn_of_hanging(left[0], transactional_id, names)
            self._end_again(transactional_id, producer, known, decided)
        except TaskMigratedError as fenced:
            self._leave_to_others(transactional_id, names, is_ours=is_ours, why=fenced)

    def _outcome(self, known: TransactionInfo, one: OpenTransaction, is_ours: bool) -> bool | None:
        """Whether the transaction was committed; None if that is not known."""
        # Whether the id was used since. An abort with a higher epoch comes from the member that fenced its producer.
        is_used = known.state != "CompleteAbort" and known.epoch > one.epoch
        if is_used or (not is_ours and may_be_committed(known, one)):
            return self._outcomes.get(one)
        return was_committed(known, one)

    def _leave_to_others(
        self, transactional_id: str, names: str, *, is_ours: bool, why: TaskMigratedError | None = None
    ) -> None:
        """Leave the transaction to the member that knows its outcome. Warn if it is still open after a while.

        Raises:
            BrokerUnavailableError: ``is_ours``, and another member is ending it. A producer that starts would fence it.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._left_to_others.setdefault(transactional_id, now_ms) >= _FULL_CHECK_MS:
            self._warn_of_hanging((transactional_id, names), transactional_id, names)
        elif is_ours:
            raise BrokerUnavailableError(
                f"a transaction of {transactional_id} is being ended by another member"
            ) from why

    def _decided(self, transactional_id: str) -> TransactionInfo | None:
        """Return the coordinator's state of the id, once no decision is being carried out."""
        until_ms = self._clock.monotonic_ms() + _ENDING_MS
        while True:
            known = self._client.describe(transactional_id)
            if known is None or not known.state.startswith("Prepare"):
                return known
            if self._clock.monotonic_ms() > until_ms:
                raise BrokerUnavailableError(f"transaction {transactional_id} is still being ended ({known.state})")
            self._clock.sleep_ms(_ENDING_PAUSE_MS)

    def _end_again(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        known: TransactionInfo,
        outcomes: Mapping[TopicPartition, bool],
    ) -> None:
        unanimous = len(set(outcomes.values())) == 1
        # Commit first: after an abort, a member that looks in between would take the other partitions for aborted.
        for commit in sorted(set(outcomes.values()), reverse=True):
            partitions = [partition for partition, outcome in outcomes.items() if outcome is commit]
            records = [partition for partition in partitions if partition.topic != _OFFSETS_TOPIC]
            # Without the right to read the offsets topic its transaction is not visible; end it with the records.
            group = self._application_id if unanimous or len(records) < len(partitions) else None
            self._client.end(transactional_id, producer, records, group=group, commit=commit)
            self._decided(transactional_id)  # the broker answers before it has written the markers
            _log.warning(
                "a transaction of %s was hanging in %s: its coordinator had ended it (%s) without telling these "
                "partitions; it is now %s there",
                transactional_id,
                ", ".join(map(str, sorted(partitions))),
                known.state,
                "committed" if commit else "aborted",
            )

    # -- while the client runs ----------------------------------------

    def watch(self, updater: Restoring) -> None:
        """Check the changelogs that the updater restores more often, as long as the updater exists."""
        with self._watching:
            self._updaters.add(updater)

    def check_soon(self, _rebalance: object = None) -> None:
        """Check all partitions now, and again once pending markers have arrived.

        Called after a rebalance, because a member may have been killed.
        """
        self._next_full_ms = min(self._next_full_ms, self._clock.monotonic_ms())
        self._extra_checks = 2

    def start(self) -> None:
        """Check periodically from now on, on a background thread."""
        threading.Thread(target=self._run, name="open-transactions", daemon=True).start()

    def close(self) -> None:
        self._stop.set()
        with contextlib.suppress(BrokerUnavailableError), self._exclusively():
            self._client.close()

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Use the client exclusively. A stream thread must not wait long for a request that gets no answer."""
        if not self._lock.acquire(timeout=_LOCK_TIMEOUT_S):
            raise BrokerUnavailableError("another request about open transactions has no answer yet")
        try:
            yield
        finally:
            self._lock.release()

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            try:
                self.check()
            except BrokerUnavailableError as error:
                _log.debug("cannot list open transactions: %s", error)
            except StreamsError as error:
                self._warn_once(
                    "check",
                    f"cannot look for open transactions: {error}. If consumers with isolation.level=read_committed "
                    f"make no progress: {_REMEDY}",
                )
            except Exception:
                if not self._stop.is_set():
                    _log.exception("looking for open transactions failed; retrying")

    def check(self) -> None:
        """Check the partitions whose check is due, and end transactions that have been open for too long."""
        now_ms = self._clock.monotonic_ms()
        with self._watching:
            updaters = list(self._updaters)
        urgent = {partition for updater in updaters for partition in updater.restoring()}
        full = now_ms >= self._next_full_ms
        if not urgent and not full:
            return
        with self._lock:
            if self._stop.is_set():
                return
            asked = urgent | self._all_partitions() if full else urgent
            if full:
                self._extra_checks -= self._extra_checks > 0
                self._next_full_ms = now_ms + (_RESTORE_PATIENCE_MS if self._extra_checks else _FULL_CHECK_MS)
            found = self._open(asked)
            kept = {one: since for one, since in self._seen.items() if one.partition not in asked}
            self._seen = kept | {one: self._seen.get(one, now_ms) for one in found}
            self._outcomes = {
                one: outcome
                for one, outcome in self._outcomes.items()
                if one in self._seen or one.partition not in asked
            }
            late = [one for one in found if self._is_late(one, now_ms, one.partition in urgent)]
            waiting = [one for one in found if one not in late and now_ms - self._seen[one] >= _RESTORE_PATIENCE_MS]
            if late or waiting:
                self._end_late(late, waiting)

    def _is_late(self, one: OpenTransaction, now_ms: int, urgent: bool) -> bool:
        patience_ms = _RESTORE_PATIENCE_MS if urgent else self._timeout_ms + _FULL_CHECK_MS
        return now_ms - self._seen[one] >= patience_ms

    def _end_late(self, late: Sequence[OpenTransaction], waiting: Sequence[OpenTransaction]) -> None:
        """End transactions that are open for too long; of ``waiting``, only transactions of dead members."""
        names = self._client.transactional_ids({one.producer_id for one in (*late, *waiting)})
        ours = {of: name for of, name in names.items() if is_of_application(name, self._application_id)}
        dead = self._dead({ours[one.producer_id] for one in waiting if one.producer_id in ours})
        ended = {one.producer_id for one in late} | {of for of, name in ours.items() if name in dead}
        for producer_id in sorted(ended):
            name = names.get(producer_id)
            if producer_id in ours:
                self._settle(ours[producer_id], is_ours=False)
                continue
            first = min(one for one in late if one.producer_id == producer_id)
            open_s = (self._clock.monotonic_ms() - self._seen[first]) / 1000
            if open_s * 1000 >= self._timeout_ms + _FULL_CHECK_MS:
                who = f"producer {producer_id}" if name is None else f"{name} (producer {producer_id})"
                self._warn_once(
                    first,
                    f"a transaction of {who}, which is not part of this application, has been open in "
                    f"{first.partition} for {open_s:.0f} s; consumers with isolation.level=read_committed wait for it. "
                    f"If it hangs: {_REMEDY}",
                )

    def _dead(self, names: Collection[str]) -> set[str]:
        """Return the ids whose process has no member in the group."""
        members = self._members() if names else None
        if members is None:
            return set()
        return {name for name in names if _process_of(name) not in members}

    # -- partitions ----------------------------------------

    def _open(self, partitions: Collection[TopicPartition]) -> Sequence[OpenTransaction]:
        return self._client.open_transactions(partitions)

    def _all_partitions(self) -> set[TopicPartition]:
        found = self._admin.describe_topics(self._topics | {_OFFSETS_TOPIC})
        return set(_partitions(found, self._application_id))

    def _warn_of_hanging(self, about: object, transactional_id: str, names: str) -> None:
        self._warn_once(about, f"a transaction of {transactional_id} hangs in {names}: {_REMEDY}")

    def _warn_once(self, about: object, sentence: str) -> None:
        """Log a warning, once per subject. With very many subjects, it is repeated."""
        if about not in self._warned:
            self._warned[about] = None
            if len(self._warned) > _WARNED_MAX:
                del self._warned[next(iter(self._warned))]
            _log.warning("%s", sentence)


def _partitions(topics: Mapping[str, Sequence[PartitionInfo] | AdminError], group: str) -> Iterator[TopicPartition]:
    """Yield the partitions with a leader; of the offsets topic, only the partition of the group."""
    for topic, infos in topics.items():
        if isinstance(infos, AdminError):
            continue
        only = (string_hash(group) & 0x7FFFFFFF) % len(infos) if topic == _OFFSETS_TOPIC else None
        for info in infos:
            if info.leader is not None and only in (None, info.partition):
                yield TopicPartition(topic, info.partition)
