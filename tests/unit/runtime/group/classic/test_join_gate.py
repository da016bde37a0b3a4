"""A commit and a JoinGroup request of one member do not overlap."""

from __future__ import annotations

import threading

import pytest

from streams_py.errors import BrokerUnavailableError
from streams_py.runtime.group.classic.join_gate import JoinGate


def test_commit_is_refused_during_a_rebalance_unless_it_is_allowed() -> None:
    gate = JoinGate()
    with gate.committing(although_rebalancing=False):
        pass
    with gate.joining(wait_ms=0) as may_lock:
        assert may_lock
    assert gate.rebalancing
    with pytest.raises(BrokerUnavailableError, match="rebalancing"), gate.committing(although_rebalancing=False):
        pytest.fail("the member may have joined")
    with gate.committing(although_rebalancing=True):
        pass


def test_member_joins_after_the_commit_in_progress() -> None:
    gate, order = JoinGate(), list[str]()

    def join() -> None:
        with gate.joining(wait_ms=60_000):
            order.append("joined")

    joining = threading.Thread(target=join)
    with gate.committing(although_rebalancing=False):
        joining.start()
        joining.join(0.05)
        order.append("committed")
    joining.join(60)
    assert order == ["committed", "joined"]


def test_member_joins_without_waiting_longer_than_the_group_allows() -> None:
    gate = JoinGate()
    with gate.committing(although_rebalancing=False), gate.joining(wait_ms=1) as may_lock:
        assert may_lock
    with gate.committing(although_rebalancing=True):  # the lock of the commit was not released by the other side
        pass


def test_member_does_not_join_during_the_last_commit_and_locks_nothing_after_it() -> None:
    gate = JoinGate()
    with gate.ending():
        with pytest.raises(BrokerUnavailableError, match="last commit is still in progress"), gate.joining(wait_ms=1):
            pytest.fail("its tasks are not given up yet")
        assert gate.rebalancing
    with gate.joining(wait_ms=1) as may_lock:
        assert not may_lock


def test_gate_opens_again_after_an_error() -> None:
    gate = JoinGate()
    with pytest.raises(ZeroDivisionError), gate.joining(wait_ms=1):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), gate.committing(although_rebalancing=True):
        raise ZeroDivisionError
    with gate.ending():
        pass
