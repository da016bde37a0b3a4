"""Transactions of this application that nobody ends: found, and ended as their coordinator has decided.

Whoever reads committed records waits for the oldest open transaction of a partition. Two kinds stay open longer than
their producer needs them:

* **of a killed member**, until ``transaction.timeout.ms`` is over. The next owner of its tasks need not wait: what
  another member has left open in a changelog that this one restores is of a former owner, whose id is taken over, which
  ends the transaction (and fences the owner, should it be a zombie). A member without state is known to be dead when
  its process has no member in the group any more: then it cannot commit either, and its transactions are ended;
* **hanging ones**, for ever. A broker that is killed and comes back goes on with the transactions that it finds in its
  log, and may take those for ended whose partitions it does not know yet at that moment: it writes no markers (seen
  with Apache Kafka 4.3.1, committed ones included). They are ended once more, under the same id and in the same way.

What is open belongs to the coordinator's last transaction of that id, or to one of an earlier epoch. That tells how it
ended (:func:`was_committed`), provided that nobody has used the id since. So the question is asked before a producer
begins (:meth:`OpenTransactions.settle`), about its own id, and by :meth:`OpenTransactions.check` about others.

Taking an id over is a use of it: who has done that knows how its transactions ended, and nobody else can find out any
more. So several members that see the same one at the same time leave it to one of them: an id is taken over by those
only who knew before, who remember what they knew until it is ended, and the others wait.
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
from streams_py.described_transactions import OpenTransaction, TransactionInfo
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskMigratedError
from streams_py.ports import Admin, AdminError, Clock, PartitionInfo, TransactionAdmin

__all__ = ["OpenTransactions", "Restoring", "is_in_doubt", "is_of_application", "was_committed"]

_log = logging.getLogger("streams_py")

_OFFSETS_TOPIC = "__consumer_offsets"
_INTERVAL_S = 0.5
_QUESTION_S = 2.0
_ENDING_MS = 5_000
_ENDING_PAUSE_MS = 50
_RESTORE_PATIENCE_MS = 1_000
"""How long a transaction may hold up a restoration: markers that are on their way arrive within that time."""
_FULL_CHECK_MS = 10_000
"""How often all partitions are looked at, and how long beyond the time-out a transaction is no reason to act."""
_REMEDY = (
    "`kafka-transactions.sh find-hanging` lists such transactions and `abort` ends them; what the coordinator calls "
    "CompleteCommit was committed, and would be lost by that"
)

_PROCESS_ID_CHARACTERS = 36
_PROCESS_ID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def is_of_application(transactional_id: str, application_id: str) -> bool:
    """True when a stream thread of this application has made the id, in Python or in Java."""
    return re.fullmatch(f"{re.escape(application_id)}-{_PROCESS_ID}-[0-9]+", transactional_id) is not None


def is_in_doubt(known: TransactionInfo, left: OpenTransaction) -> bool:
    """True when :func:`was_committed` holds for our own producers alone. Those of Java have a new epoch for each
    transaction (KIP-890, second part): one of an older epoch than the coordinator's may have been committed."""
    aborted = known.state == "CompleteAbort" and known.epoch == left.epoch + 1
    return left.epoch < known.epoch and not aborted


def _process_of(transactional_id: str) -> str:
    return transactional_id.rpartition("-")[0][-_PROCESS_ID_CHARACTERS:]


def was_committed(known: TransactionInfo, left: OpenTransaction) -> bool:
    """How a transaction ended that is still open in a partition, from what its coordinator knows of the id.

    Our producers (and those of Kafka Streams after a failure) never go on after an abort: so within an epoch all
    transactions but the last one were committed. A higher epoch means that the producer was fenced before it decided.
    """
    if left.epoch != known.epoch:
        return False
    if known.state == "Ongoing":
        return left.partition not in known.partitions
    return known.state == "CompleteCommit"


class Restoring(Protocol):
    """Somebody who waits for the end of changelogs, and so for transactions in them."""

    def restoring(self) -> Collection[TopicPartition]:
        """Changelogs that are restored now. Thread-safe."""


class OpenTransactions:
    """One per client. ``topics``: those that the application writes, whose partitions are looked at. ``members``: the
    process ids of those that are in the group now; None while that is not known, or a rebalance is under way."""

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
        self._lock = threading.Lock()  # of the client
        self._watching = threading.Lock()  # of the next one
        self._updaters: weakref.WeakSet[Restoring] = weakref.WeakSet()
        self._seen: dict[OpenTransaction, int] = {}  # since when
        self._outcomes: dict[OpenTransaction, bool] = {}
        """How those ended whose id was taken over here: the coordinator does not tell it any more. True: committed."""
        self._doubted: dict[str, int] = {}  # ids that somebody else seems to end, and since when
        self._told: set[object] = set()
        self._next_full_ms = clock.monotonic_ms() + _FULL_CHECK_MS
        self._looks = 0  # so many more full checks are soon
        self._stop = threading.Event()

    # -- before a producer begins ----------------------------------------

    def settle(self, transactional_id: str) -> None:
        """End what is open under an id that is about to be used. BrokerUnavailableError when that has to be tried
        again, UnsupportedOperationError when the brokers are too old for transactions; what else is refused is logged,
        and the producer begins nevertheless."""
        with self._asking():
            self._client.check_brokers()
        try:
            with self._asking():
                self._settle(transactional_id, is_ours=True)
        except BrokerUnavailableError:
            raise
        except StreamsError as error:
            self._tell(
                "settle",
                f"it is not known whether transactions of {transactional_id} hang: {error}. If readers stand "
                f"still: {_REMEDY}",
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
        self._doubted.pop(transactional_id, None)
        if not left:
            return
        # Before: the answer may get lost. What the coordinator has not decided may still end otherwise.
        self._outcomes |= {one: how for one, how in outcomes.items() if how or known.state != "Ongoing"}
        try:
            producer = self._client.take_over(transactional_id, self._timeout_ms)
            self._outcomes |= outcomes
            before = frozenset(left)
            left = [one for one in self._open({one.partition for one in before}) if one in before]
            if not left:
                _log.info("transaction %s was left open and is ended now: it held up %s", transactional_id, names)
                return
            is_same = producer[0] == known.producer_id
            decided = {one.partition: outcomes[one] for one in left if is_same and one in outcomes}
            if len(decided) < len(left):
                self._ask_for_help(left[0], transactional_id, names)
            self._end_again(transactional_id, producer, known, decided)
        except TaskMigratedError as fenced:
            self._leave_to_others(transactional_id, names, is_ours=is_ours, why=fenced)

    def _outcome(self, known: TransactionInfo, one: OpenTransaction, is_ours: bool) -> bool | None:
        """Whether it was committed; None when that is not known."""
        # Since it was left open. An abort of a higher epoch is that of whoever fenced its producer.
        is_used = known.state != "CompleteAbort" and known.epoch > one.epoch
        if is_used or (not is_ours and is_in_doubt(known, one)):
            return self._outcomes.get(one)
        return was_committed(known, one)

    def _leave_to_others(
        self, transactional_id: str, names: str, *, is_ours: bool, why: TaskMigratedError | None = None
    ) -> None:
        """Who knows more ends it; when nobody does, help is asked for.
        BrokerUnavailableError when ``is_ours``: a producer that begins would fence them."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._doubted.setdefault(transactional_id, now_ms) >= _FULL_CHECK_MS:
            self._ask_for_help((transactional_id, names), transactional_id, names)
        elif is_ours:
            raise BrokerUnavailableError(
                f"a transaction of {transactional_id} is being ended by another member"
            ) from why

    def _decided(self, transactional_id: str) -> TransactionInfo | None:
        """What the coordinator knows when no decision is being carried out."""
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
        # What was committed first: after an abort the others would be taken for aborted by who looks in between.
        for commit in sorted(set(outcomes.values()), reverse=True):
            partitions = [partition for partition, outcome in outcomes.items() if outcome is commit]
            records = [partition for partition in partitions if partition.topic != _OFFSETS_TOPIC]
            # Who may not read the topic of offsets does not see them, and ends them with the records.
            group = self._application_id if unanimous or len(records) < len(partitions) else None
            self._client.end(transactional_id, producer, records, group=group, commit=commit)
            self._decided(transactional_id)  # the answer comes before the markers are written
            _log.warning(
                "a transaction of %s was hanging in %s: its coordinator had ended it (%s), but had not told these "
                "partitions; it is %s now",
                transactional_id,
                ", ".join(map(str, sorted(partitions))),
                known.state,
                "committed" if commit else "aborted",
            )

    # -- while the client runs ----------------------------------------

    def watch(self, updater: Restoring) -> None:
        """What it restores is looked at more often, as long as it lives."""
        with self._watching:
            self._updaters.add(updater)

    def look_soon(self, _rebalance: object = None) -> None:
        """A rebalance is over, so somebody may have been killed: look at all partitions now, and once more when markers
        that were on their way have arrived."""
        self._next_full_ms = min(self._next_full_ms, self._clock.monotonic_ms())
        self._looks = 2

    def start(self) -> None:
        """Check from now on, on a thread of its own."""
        threading.Thread(target=self._run, name="open-transactions", daemon=True).start()

    def close(self) -> None:
        self._stop.set()
        with contextlib.suppress(BrokerUnavailableError), self._asking():
            self._client.close()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """A stream thread has other things to do than to wait for a question that nobody answers."""
        if not self._lock.acquire(timeout=_QUESTION_S):
            raise BrokerUnavailableError("a question about open transactions has no answer yet")
        try:
            yield
        finally:
            self._lock.release()

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            try:
                self.check()
            except BrokerUnavailableError as error:
                _log.debug("open transactions are not known: %s", error)
            except StreamsError as error:
                self._tell("check", f"open transactions are not looked for: {error}. If readers stand still: {_REMEDY}")
            except Exception:
                if not self._stop.is_set():
                    _log.exception("looking for open transactions failed; trying again")

    def check(self) -> None:
        """Look at the partitions it is time for, and end what holds them up."""
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
                self._looks -= self._looks > 0
                self._next_full_ms = now_ms + (_RESTORE_PATIENCE_MS if self._looks else _FULL_CHECK_MS)
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
        """``waiting``: of those only what dead members have left."""
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
                self._tell(
                    first,
                    f"a transaction of {who}, which is not of this application, has been open in {first.partition} "
                    f"for {open_s:.0f} s; readers of committed records wait for it. If it hangs: {_REMEDY}",
                )

    def _dead(self, names: Collection[str]) -> set[str]:
        """Those ids whose process has no member in the group."""
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

    def _ask_for_help(self, about: object, transactional_id: str, names: str) -> None:
        self._tell(about, f"a transaction of {transactional_id} hangs in {names}: {_REMEDY}")

    def _tell(self, about: object, sentence: str) -> None:
        """Warn, once."""
        if about not in self._told:
            self._told.add(about)
            _log.warning("%s", sentence)


def _partitions(topics: Mapping[str, Sequence[PartitionInfo] | AdminError], group: str) -> Iterator[TopicPartition]:
    """All with a leader; of the topic of offsets only the one that has the group's."""
    for topic, infos in topics.items():
        if isinstance(infos, AdminError):
            continue
        only = (string_hash(group) & 0x7FFFFFFF) % len(infos) if topic == _OFFSETS_TOPIC else None
        for info in infos:
            if info.leader is not None and only in (None, info.partition):
                yield TopicPartition(topic, info.partition)
