"""Unusable answers of the application's assignor: tasks stay, and the error names the class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.assignment.assignors.registry import call_assignor
from streams_py.errors import AssignorError, StreamsError
from streams_py.leader.effects import Effect, RunAssignor
from streams_py.leader.events import AssignorFailed, AssignorReturned, Event
from tests.support.leader.kit import NOW_MS, FakeCluster, assign, member, pid, tps


class Unhashable:
    __hash__ = None  # type: ignore[assignment]  # that is the point


class Hostile:
    """An object on which every operation fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __iter__(self) -> Iterator[object]:
        raise RuntimeError("no iteration")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __contains__(self, item: object) -> bool:
        raise RuntimeError("no membership")


class SilentError(Exception):
    """An error without text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class NoZone(tzinfo):
    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        raise RuntimeError("no offset")


class OddTask(TaskId):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    __hash__ = TaskId.__hash__


def dies_half_way() -> Iterator[object]:
    yield KafkaStreamsAssignment(pid(1))
    raise ValueError("half way")


class DiesHalfWay(list[object]):
    def __iter__(self) -> Iterator[object]:
        return dies_half_way()


_junk: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.builds(Unhashable),
    st.builds(Hostile),
    st.builds(object),
    st.builds(dies_half_way),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.integers(), st.integers(), max_size=2),
    st.just(TaskAssignment),
)
_tasks = st.one_of(
    st.tuples(st.integers(0, 1), st.integers(0, 4)).map(lambda numbers: TaskId(*numbers)),
    st.tuples(_junk, _junk, st.integers()).map(TaskId._make),
    st.tuples(st.text(max_size=3), st.integers(), st.integers()).map(TaskId._make),
    st.integers(0, 3).map(lambda partition: OddTask(0, partition)),
    _junk,
)
_assigned = st.one_of(
    st.builds(AssignedTask, _tasks, st.sampled_from(TaskType)), st.builds(AssignedTask, _tasks, _junk), _junk
)
_processes = st.one_of(
    st.sampled_from([pid(1), pid(2), pid(3)]), st.builds(lambda a, b: ProcessId._make((a, b)), _junk, _junk), _junk
)
_deadlines = st.one_of(
    st.none(),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=23)), timezone(-timedelta(hours=23))])),
    st.datetimes(timezones=st.builds(NoZone)),
    st.datetimes(),
    st.timedeltas(),
    _junk,
)


def _dict_of(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    made = {}
    for key, value in pairs:
        try:
            made[key] = value
        except Exception:
            made[0] = value
    return made


def _entry_of(process: Any, tasks: Any, deadline: Any) -> KafkaStreamsAssignment:
    entry = KafkaStreamsAssignment(process)
    entry._tasks, entry._deadline = tasks, deadline  # what its methods would refuse
    return entry


_entries = st.one_of(
    st.builds(
        _entry_of,
        _processes,
        st.one_of(st.lists(st.tuples(_tasks, _assigned), max_size=3).map(_dict_of), _junk),
        _deadlines,
    ),
    st.builds(
        lambda process, ids: KafkaStreamsAssignment(process, [AssignedTask(id, TaskType.ACTIVE) for id in ids]),
        st.sampled_from([pid(1), pid(2)]),
        st.lists(st.integers(0, 3).map(lambda partition: TaskId(0, partition)), max_size=3),
    ),
    _junk,
)
_answers = st.one_of(
    st.lists(_entries, max_size=4).map(TaskAssignment),
    st.lists(_entries, max_size=2).map(DiesHalfWay).map(TaskAssignment),
    st.builds(TaskAssignment, _junk),
    _junk,
)
_errors = st.sampled_from(
    [ValueError("boo"), SilentError(), StreamsError("ours"), TimeoutError("a socket's"), StopIteration()]
)


class Mine(TaskAssignor):
    """An assignor that runs the test's function."""

    act: Callable[[], Any] = staticmethod(lambda: None)

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return self.act()  # type: ignore[no-any-return]  # nonsense on purpose


GROUP = {"a": member(1, owned="in-0 in-1", sums={"0_0": -2}), "b": member(2, owned="in-2", sums={"0_2": -2})}


def _raise(error: Exception) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


@given(st.one_of(_answers.map(lambda answer: lambda: answer), _errors.map(_raise)))
def test_any_answer_leaves_everybody_with_what_they_have_or_with_what_it_says(act: Callable[[], Any]) -> None:
    def run(effect: Effect) -> Event:
        assert isinstance(effect, RunAssignor)
        mine = Mine()
        mine.act = act  # type: ignore[method-assign]  # one for each example
        try:
            return AssignorReturned(NOW_MS, call_assignor(mine, effect.application_state))
        except StreamsError as error:
            return AssignorFailed(NOW_MS, error)

    outcome = assign(GROUP, cluster=FakeCluster(faults={RunAssignor: run}), task_assignor=Mine)
    assert set(outcome.codes.values()) == {0}
    if outcome.cluster.reported:
        [error] = outcome.cluster.reported
        assert isinstance(error, AssignorError)
        assert f"{__name__}:Mine" in str(error)
        assert outcome.partitions == {"a": tps("in-0 in-1"), "b": tps("in-2")}
        assert outcome.next_ms("a") == NOW_MS + 60_000
    else:
        given = [task for name in GROUP for task in outcome.active(name)]
        assert len(given) == len(set(given))
        assert all(outcome.next_ms(name) == 0 or outcome.next_ms(name) > NOW_MS for name in GROUP)
