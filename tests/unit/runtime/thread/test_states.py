"""The state machines of clients and threads, with every pair of states."""

from __future__ import annotations

import itertools

import pytest

from streams_py.runtime.thread.states import State, ThreadState, client_may_go, is_running, thread_may_go

# Kafka's tables, as KafkaStreams.State and StreamThread.State document them. Same-state requests change nothing here.
CLIENT = """
    CREATED          -> REBALANCING PENDING_SHUTDOWN
    REBALANCING      -> RUNNING PENDING_SHUTDOWN PENDING_ERROR
    RUNNING          -> REBALANCING PENDING_SHUTDOWN PENDING_ERROR
    PENDING_SHUTDOWN -> NOT_RUNNING
    PENDING_ERROR    -> ERROR
    NOT_RUNNING      ->
    ERROR            ->
"""
THREAD = """
    CREATED             -> STARTING PENDING_SHUTDOWN
    STARTING            -> PARTITIONS_REVOKED PARTITIONS_ASSIGNED PENDING_SHUTDOWN
    PARTITIONS_REVOKED  -> PARTITIONS_ASSIGNED PENDING_SHUTDOWN
    PARTITIONS_ASSIGNED -> PARTITIONS_REVOKED RUNNING PENDING_SHUTDOWN
    RUNNING             -> PARTITIONS_REVOKED PARTITIONS_ASSIGNED PENDING_SHUTDOWN
    PENDING_SHUTDOWN    -> DEAD
    DEAD                ->
"""


def pairs(table: str) -> set[tuple[str, str]]:
    rows = (line.split("->") for line in table.strip().splitlines())
    return {(old.strip(), new) for old, targets in rows for new in targets.split()}


def different(states: type) -> list[tuple[str, str]]:
    return [(old.name, new.name) for old, new in itertools.permutations(states, 2)]


@pytest.mark.parametrize(("old", "new"), different(State))
def test_client_changes_its_state_only_as_in_the_table(old: str, new: str) -> None:
    assert client_may_go(State[old], State[new]) == ((old, new) in pairs(CLIENT))


@pytest.mark.parametrize(("old", "new"), different(ThreadState))
def test_thread_changes_its_state_only_as_in_the_table(old: str, new: str) -> None:
    assert thread_may_go(ThreadState[old], ThreadState[new]) == ((old, new) in pairs(THREAD))


@pytest.mark.parametrize("first", ThreadState)
@pytest.mark.parametrize("second", ThreadState)
def test_client_runs_when_a_thread_runs_and_the_others_run_or_end(first: ThreadState, second: ThreadState) -> None:
    passive = {ThreadState.RUNNING, ThreadState.DEAD, ThreadState.PENDING_SHUTDOWN}
    expected = ThreadState.RUNNING in (first, second) and {first, second} <= passive
    assert is_running([first, second]) == expected


def test_client_without_threads_does_not_run() -> None:
    assert not is_running([])


@pytest.mark.parametrize("state", State)
def test_final_states_are_those_without_a_way_out(state: State) -> None:
    assert state.is_final == (not any(client_may_go(state, new) for new in State))
    assert state.is_running_or_rebalancing == (state.name in ("RUNNING", "REBALANCING"))
