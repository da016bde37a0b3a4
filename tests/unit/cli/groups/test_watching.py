"""The reader behind the page: the content of the board while the group changes."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.cli.groups.watching import dashboard
from streams_py.dashboard.board import Board
from streams_py.dashboard.history import History
from streams_py.dashboard.watcher import GroupWatcher
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.events.codec import encode_value
from streams_py.events.model import Envelope, Event, Eviction, RebalanceHeader
from streams_py.ports.described_groups import DescribedGroup
from tests.support.events.golden import EVENTS
from tests.support.inspection.groups import FakeCluster, rebalanced, said, topics
from tests.support.waiting import until

TASKS = [TaskId(sub, n) for sub in (0, 1) for n in range(2)]
STANDBYS = AssignmentConfigs(num_standby_replicas=1)


def two_members() -> FakeCluster:
    """m0 runs 0_0 and 1_0, m1 the others; each has a standby of the other's task with state."""
    cluster = FakeCluster(topics(2), {"in": 7, "app-counts-changelog": 500})
    members = {
        f"m{n}": said(n, owned=TASKS[n::2], sums={TaskId(0, n): LATEST_OFFSET, TaskId(0, 1 - n): 480}) for n in range(2)
    }
    rebalanced(cluster, members, 2, STANDBYS)
    return cluster


class Shown:
    """Return the content of a board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def __getattr__(self, part: str) -> Any:
        found = {name: text for name, _, text in self._board.since({})}
        return json.loads(found[part]) if part in found else None

    def owners(self) -> dict[str, str | None]:
        group = self.group
        names = [member["label"] for member in group["members"]]
        return {task[0]: None if task[1] is None else names[task[1]] for task in group["tasks"]}


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def cluster() -> FakeCluster:
    return two_members()


@pytest.fixture
def watcher(cluster: FakeCluster, board: Board) -> Iterator[GroupWatcher]:
    watching = GroupWatcher(cluster, "app", board, every_s=0.01)
    watching.start()
    yield watching
    watching.stop()


def test_events_topic_that_is_not_there_is_refused(cluster: FakeCluster, board: Board) -> None:
    with pytest.raises(StreamsError, match=r"events topic app-events does not exist"):
        GroupWatcher(cluster, "app", board, events_topic="app-events")


def test_everything_is_shown_at_once_and_lags_soon_after(watcher: GroupWatcher, board: Board) -> None:
    shown = Shown(board)
    assert shown.owners() == {"0_0": "A1", "0_1": "B1", "1_0": "A1", "1_1": "B1"}
    until(lambda: shown.lags is not None, "lags")
    assert shown.lags == {"0_0": 0, "0_1": 0, "1_0": 0, "1_1": 0}
    until(lambda: shown.group["tasks"][0][5] == [[1, 20]], "the standby's lag")


def test_the_look_after_a_change_shows_it_and_comes_within_a_second(
    board: Board, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change is visible within two seconds: there is one pause between two rounds of the command.

    The first response with the change is on the board before the next pause. The benchmark ``inspect`` measures the
    duration of a round.
    """
    rests: list[float | None] = []
    shown: list[dict[str, str | None]] = []

    class Rests(threading.Event):
        """Kill a member in the second pause. Stop the reader after the third."""

        def wait(self, timeout: float | None = None) -> bool:
            rests.append(timeout)
            shown.append(Shown(board).owners())
            match len(rests):
                case 2:
                    cluster.described = cluster.described._replace(members=cluster.described.members[:1])
                case 3:
                    self.set()
            return self.is_set()

    with monkeypatch.context() as patch:
        # Not in the module itself: a thread waits for an event of its own when it starts.
        patch.setattr("streams_py.dashboard.watcher.threading", SimpleNamespace(**vars(threading) | {"Event": Rests}))
        watching = GroupWatcher(cluster, "app", board, every_s=inspect.signature(dashboard).parameters["every"].default)
    watching.start()
    until(lambda: len(rests) == 3, "three looks")
    watching.stop()
    assert [owners["0_1"] for owners in shown] == ["B1", "B1", None]
    assert rests[1] is not None
    assert rests[1] <= 1


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_members_that_are_gone_run_nothing_while_the_group_rebalances(
    watcher: GroupWatcher, board: Board, cluster: FakeCluster, state: str
) -> None:
    """During a rebalance the coordinator returns no subscriptions, and the old assignments."""
    shown = Shown(board)
    assignment = b"" if state == "PreparingRebalance" else cluster.described.members[0].assignment
    first = cluster.described.members[0]._replace(subscription=b"", assignment=assignment)
    cluster.described = DescribedGroup("app", state, "consumer", "", (first,))
    until(lambda: shown.group["state"] == state, "the rebalance")
    assert shown.owners() == {"0_0": "A1", "0_1": None, "1_0": "A1", "1_1": None}
    assert shown.group["problems"] == []
    assert {(m["task"], m["from"], m["to"]) for m in shown.history["moves"]} == {
        ("0_1", "B1", None),
        ("1_1", "B1", None),
    }
    with pytest.raises(StreamsError, match="is rebalancing"):
        watcher.why(TaskId(0, 0))


def test_a_group_that_everybody_has_left_keeps_its_tasks_on_the_page(
    watcher: GroupWatcher, board: Board, cluster: FakeCluster
) -> None:
    cluster.described = DescribedGroup("app", "Empty", "consumer", "", ())
    until(lambda: Shown(board).group["state"] == "Empty", "the empty group")
    assert set(Shown(board).owners().values()) == {None}
    assert len(Shown(board).owners()) == 4


def test_names_of_members_that_are_gone_are_not_given_again(
    watcher: GroupWatcher, board: Board, cluster: FakeCluster
) -> None:
    members = {
        "m1": said(1, owned=TASKS[1::2], sums={TaskId(0, 1): LATEST_OFFSET}, generation=7),
        "m2": said(2, generation=-1),
    }
    rebalanced(cluster, members, 2)
    until(lambda: [member["label"] for member in Shown(board).group["members"]] == ["B1", "C1"], "the newcomer as C1")


def test_reasons_are_told_with_the_names_of_the_page(watcher: GroupWatcher, board: Board, cluster: FakeCluster) -> None:
    rebalanced(cluster, {"m1": said(1, owned=TASKS, sums=dict.fromkeys(TASKS[:2], LATEST_OFFSET), generation=7)}, 2)
    until(lambda: set(Shown(board).owners().values()) == {"B1"}, "everything at B1")
    text = watcher.why(TaskId(0, 0))
    assert text.startswith("0_0 is active on B (")
    assert "it runs on thread B1" in text
    with pytest.raises(StreamsError, match="has no task 7_7"):
        watcher.why(TaskId(7, 7))


def test_a_cluster_that_is_away_is_said_and_forgotten_when_it_is_back(
    watcher: GroupWatcher, board: Board, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(group: str) -> DescribedGroup:
        raise BrokerUnavailableError("no answer from\nbroker:9092")

    shown = Shown(board)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "describe_group", away)
        until(lambda: shown.trouble["text"] == "no answer from broker:9092", "the trouble, in one line")
    until(lambda: shown.trouble["text"] is None, "the end of the trouble")
    assert shown.owners()["0_0"] == "A1"


def test_a_board_tells_each_listener_what_it_has_not_seen() -> None:
    async def listen() -> None:
        board = Board()
        board.publish("group", {"n": 1})
        early, late = board.listen(), board.listen()
        assert await early.changes(5) == [("group", '{"n":1}')]
        board.publish("group", {"n": 2})
        board.publish("group", {"n": 3})
        assert await early.changes(5) == [("group", '{"n":3}')], "versions that no listener waited for are skipped"
        assert await late.changes(5) == [("group", '{"n":3}')]
        board.publish("group", {"n": 3})
        assert await early.changes(0.05) == [], "unchanged content does not wake listeners"
        board.leave(early)
        board.close()
        assert await late.changes(5) == []

    asyncio.run(listen())


def test_no_more_pages_are_served_than_there_is_room_for() -> None:
    async def listen() -> None:
        board = Board()
        listeners = [board.listen() for _ in range(100)]
        with pytest.raises(StreamsError, match="100 pages are open"):
            board.listen()
        board.leave(listeners[0])
        board.listen()

    asyncio.run(listen())


# -- events ------------------------------------------------------------------------------------------------------


def task_event(event: str, **more: object) -> bytes:
    fields = {"v": 1, "kind": "task", "group": "app", "process": "p", "run": "", "seq": 1, "at_ms": 5, "mono_us": 5}
    fields |= {"dropped": 0, "task": "0_0", "role": "active", "member": "m0", "generation": 3, "event": event}
    return json.dumps({**fields, **more}).encode()


def test_restorations_are_shown_until_they_end() -> None:
    history = History()
    history.take(task_event("restore_started", records_total=200), "app")
    history.take(task_event("restore_progress", records_done=50, records_total=200), "app")
    assert history.restores({"m0": "A1"}) == [{"task": "0_0", "member": "A1", "done": 50, "total": 200}]
    assert history.restores({}) == [], "of a member that is gone"
    history.take(task_event("restored", records=200, took_us=1), "app")
    assert history.restores({"m0": "A1"}) == []


def event(body: RebalanceHeader | Eviction, at_ms: int) -> bytes:
    envelope = Envelope(group="app", process="p", seq=1, at_ms=at_ms, mono_us=0, dropped=0)
    return encode_value(Event(envelope, body))


def test_removal_of_dead_members_is_a_trigger_of_the_next_rebalance() -> None:
    header = EVENTS["rebalance"].body
    assert isinstance(header, RebalanceHeader)
    header = replace(header, trigger=("member_left",))
    history = History()
    for at_ms, generation in ((100_000, 7), (300_000, 9), (200_000, 8)):
        history.take(event(replace(header, generation=generation), at_ms), "app")
    history.take(event(Eviction(pid=4711, members=("m-1",)), 199_000), "app")
    history.take(event(Eviction(pid=None, members=("m-2",)), 299_999), "app")
    history.take(event(Eviction(pid=1, members=("m-3",)), 20_000), "app")  # the rebalance after it is not shown
    history.take(event(Eviction(pid=2, members=("m-4",)), 300_001), "app")  # before its rebalance
    assert [(shown["generation"], shown["trigger"]) for shown in history.rebalances] == [
        (9, ["member_left", "removed dead members of a process"]),
        (8, ["member_left", "removed dead members of process 4711"]),
        (7, ["member_left"]),
    ]
    history.take(event(replace(header, generation=10), 301_000), "app")
    assert history.rebalances[0]["trigger"] == ["member_left", "removed dead members of process 2"]


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b'{"v": 99, "kind": "task"}', task_event("x", task="?")])
def test_records_that_are_no_events_are_left_alone(value: bytes | None) -> None:
    history = History()
    history.take(value, "app")
    history.take(task_event("restore_started", records_total=9), "another group")
    assert (history.rebalances, history.restores({"m0": "A1"})) == ([], [])
