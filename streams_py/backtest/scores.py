"""The scores of a decision and of the changes that it causes. They are not combined into one.

Movement is counted relative to the tasks that clients had in the situation. A task that a client did not run before
must be restored there by its lag. So must every copy that it did not have. A task whose former owner is gone has not
moved, but a client must still restore it.

======================== ================ ==============================================================================
score                    unit             meaning
======================== ================ ==============================================================================
unassigned               tasks            without an active owner
missing_copies           copies           required by ``num.standby.replicas`` (the larger of the recorded and the
                                          candidate's value) and not placed, although clients are available
balance_cv               ratio            deviation of active tasks per thread over their mean (tasks of a client are
                                          assumed to be distributed evenly to its threads)
max_over_mean            ratio            active tasks of the busiest thread over the mean
sub_skew                 tasks            over sub-topologies, most minus least active tasks of a client; 0, 1 = perfect
weighted_max_over_mean   ratio            measured work of the busiest client over the mean; null if not measured
moved_active             tasks            that another client of the group ran before
moved_cold               tasks            of these, with state that is behind by more than ``acceptable.recovery.lag``
                                          or does not exist there
moved_standby            copies           that their client did not have before, warm-ups included
restore_records          records          to be restored in total; null when end offsets or lags are unknown
unavailable_records      records          to be restored for active tasks: users wait for them
spread_violations        tasks x tags     whose copies share a tag value (or rack) although they need not
cross_rack_partitions    partitions       read by a client in a rack without a replica: inputs of active tasks and
                                          changelogs of standbys; null when racks are unknown
======================== ================ ==============================================================================
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId, TopicPartition
from streams_py.backtest.deciding import Placed
from streams_py.backtest.inputs import FUTURE_CLIENT
from streams_py.backtest.situation import Situation, configs_of

_RACK: Final = "rack"


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one decision, see the table above."""

    unassigned: int
    missing_copies: int
    balance_cv: float | None
    max_over_mean: float | None
    sub_skew: int
    weighted_max_over_mean: float | None
    moved_active: int
    moved_cold: int
    moved_standby: int
    restore_records: int | None
    unavailable_records: int | None
    spread_violations: int
    cross_rack_partitions: int | None


def owners_of(situation: Situation) -> dict[TaskId, str]:
    """Return the client that ran each task before."""
    return {task: name for name, client in situation.clients.items() for task in client.prev_active}


def score(
    situation: Situation,
    placed: Mapping[str, Placed],
    *,
    withheld: frozenset[TaskId] = frozenset(),
    owners: Mapping[TaskId, str] | None = None,
) -> Scores:
    """Return all scores of a valid decision.

    Args:
        situation: the situation.
        placed: the decision.
        withheld: tasks that have not moved yet.
        owners: previous owners of tasks, if they are older than the situation.
    """
    balance_cv, max_over_mean = _balance(situation, placed)
    movement = _Movement(situation)
    movement.count(placed, withheld, owners_of(situation) if owners is None else owners)
    return Scores(
        unassigned=len(situation.plan.table.tasks) - len({task for of in placed.values() for task in of.active}),
        missing_copies=_missing(situation, placed),
        balance_cv=balance_cv,
        max_over_mean=max_over_mean,
        sub_skew=_sub_skew(placed),
        weighted_max_over_mean=_weighted(situation, placed),
        moved_active=movement.active,
        moved_cold=movement.cold,
        moved_standby=movement.standby,
        restore_records=None if movement.is_unknown else movement.restored,
        unavailable_records=None if movement.is_unknown_active else movement.unavailable,
        spread_violations=_spread_violations(situation, placed),
        cross_rack_partitions=_cross_rack(situation, placed),
    )


class _Movement:
    """Counts the tasks that clients get and did not have, and the records to restore for them."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        # The recorded setting, even if a candidate overrides it, so that all candidates are measured alike.
        self._acceptable = configs_of(situation.replay.configs, {}).acceptable_recovery_lag
        self.active = self.cold = self.standby = 0
        self.restored = self.unavailable = 0
        self.is_unknown = self.is_unknown_active = False

    def count(self, placed: Mapping[str, Placed], withheld: frozenset[TaskId], owners: Mapping[TaskId, str]) -> None:
        situation = self._situation
        for name, of in placed.items():
            client = situation.clients[name]
            ran, copies = frozenset(client.prev_active), frozenset(client.prev_standby)
            for task in of.active:
                if task in ran or task in withheld:
                    continue
                lag = situation.lag(name, task)
                if owners.get(task, name) != name:
                    self.active += 1
                    self.cold += self._is_cold(task, lag, has_copy=task in copies)
                self._restore(task, lag, is_active=True)
            for task in (*of.standby, *of.warmup):
                if task not in ran and task not in copies:
                    self.standby += 1
                    self._restore(task, situation.lag(name, task), is_active=False)

    def _is_cold(self, task: TaskId, lag: int | None, *, has_copy: bool) -> bool:
        if task not in self._situation.ends or lag in (LATEST_OFFSET, 0):
            return False
        return lag is None or lag > self._acceptable or not has_copy

    def _restore(self, task: TaskId, lag: int | None, *, is_active: bool) -> None:
        if task not in self._situation.ends:
            return
        if lag is None:
            self.is_unknown = True
            self.is_unknown_active |= is_active
            return
        records = max(lag, 0)  # -2: running there
        self.restored += records
        if is_active:
            self.unavailable += records


def _missing(situation: Situation, placed: Mapping[str, Placed]) -> int:
    # At least the recorded setting is required: a candidate must not improve its score with a smaller setting.
    promised = configs_of(situation.replay.configs, {}).num_standby_replicas
    hosts = sum(name != FUTURE_CLIENT for name in situation.clients)
    wanted = min(max(promised, situation.configs.num_standby_replicas), hosts - 1)
    copies = Counter(task for of in placed.values() for task in {*of.standby, *of.warmup})
    return sum(max(wanted - copies[task], 0) for task in situation.ends) if wanted > 0 else 0


# -- balance -----------------------------------------------------------------------------------------------------------


def _balance(situation: Situation, placed: Mapping[str, Placed]) -> tuple[float | None, float | None]:
    """Return (coefficient of variation, largest over mean) of active tasks per thread."""
    threads: list[int] = []
    for name, of in placed.items():
        capacity = len(situation.clients[name].consumers)
        share, more = divmod(len(of.active), capacity)
        threads += [share + 1] * more + [share] * (capacity - more)
    mean = sum(threads) / len(threads)
    if not mean:
        return None, None
    return statistics.pstdev(threads, mean) / mean, max(threads) / mean


def _sub_skew(placed: Mapping[str, Placed]) -> int:
    counts: dict[int, Counter[str]] = {}
    for name, of in placed.items():
        for task in of.active:
            counts.setdefault(task.subtopology, Counter())[name] += 1
    return max(
        (
            max(of_sub.values()) - (min(of_sub.values()) if len(of_sub) == len(placed) else 0)
            for of_sub in counts.values()
        ),
        default=0,
    )


def _weighted(situation: Situation, placed: Mapping[str, Placed]) -> float | None:
    weights = situation.plan.weights
    if len(weights) < len(situation.plan.table.tasks):
        return None
    loads = [sum(weights[task] for task in of.active) for of in placed.values()]
    mean = sum(loads) / len(loads)
    return max(loads) / mean if mean else None


# -- spread and racks --------------------------------------------------------------------------------------------------


def _spread_violations(situation: Situation, placed: Mapping[str, Placed]) -> int:
    values: dict[str, dict[str, str]] = {}
    for name, client in situation.clients.items():
        for tag, value in {**client.tags, **({_RACK: client.rack} if client.rack else {})}.items():
            values.setdefault(tag, {})[name] = value
    if not values:
        return 0
    hosts: dict[TaskId, list[str]] = {}
    for name, of in placed.items():
        for task in (*of.active, *of.standby):
            hosts.setdefault(task, []).append(name)
    available = {tag: len(set(of_tag.values())) for tag, of_tag in values.items()}
    violations = 0
    for names in hosts.values():
        if len(names) > 1:
            for tag, of_tag in values.items():
                distinct = len({of_tag[name] for name in names if name in of_tag})
                violations += distinct < min(len(names), available[tag])
    return violations


def _cross_rack(situation: Situation, placed: Mapping[str, Placed]) -> int | None:
    plan = situation.plan
    if not plan.knows_racks or not any(client.rack for client in situation.clients.values()):
        return None
    racks = {(name, info.partition): info.racks for name, infos in plan.topics.items() for info in infos}
    table = plan.table
    foreign = 0
    for name, of in placed.items():
        rack = situation.clients[name].rack
        if rack is None:
            continue
        for task in of.active:
            foreign += _abroad(table.inputs[task], racks, rack)
        for task in (*of.standby, *of.warmup):
            both = (*table.changelogs.get(task, ()), *table.source_changelogs.get(task, ()))
            foreign += _abroad(both, racks, rack)
    return foreign


def _abroad(partitions: Sequence[TopicPartition], racks: Mapping[tuple[str, int], frozenset[str]], rack: str) -> int:
    found = (racks.get((tp.topic, tp.partition)) for tp in partitions)
    return sum(bool(of) and rack not in of for of in found if of is not None)
