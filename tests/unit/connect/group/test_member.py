"""A worker's membership: its join data, its jobs after each join, and groups with several modes."""

from __future__ import annotations

import pytest

from streams_protocol.connect import Assignment, decode_assignment, decode_worker_state, encode_assignment
from streams_py.connect.assignment.jobs import NOTHING, Jobs
from streams_py.connect.assignment.leader import ConfigSnapshot
from streams_py.connect.assignment.modes import Mode
from tests.support.connect.fake_group import FakeCoordinator, FakeGroup, Worker
from tests.support.connect.trace import expected, jobs, shown

AB = ConfigSnapshot(4, {"a": 2, "b": 2})


def assignment(given: str, *, revoked: str = "", offset: int = 4, error: int = 0, version: int = 1) -> bytes:
    new, old = jobs(given), jobs(revoked)
    return encode_assignment(
        Assignment(
            "leader",
            "http://leader:8083/",
            offset,
            error=error,
            connectors=tuple(new.connectors),
            tasks=tuple(new.tasks),
            revoked_connectors=tuple(old.connectors),
            revoked_tasks=tuple(old.tasks),
            version=version,
        ),
        version,
    )


class Alone(Worker):
    """A worker whose joins are completed by hand."""

    def joined(self, mode: Mode, given: str, **fields: object) -> None:
        data = assignment(given, version=mode.version, **fields)  # type: ignore[arg-type]
        self.member.joined(1, "me", mode.value, data)
        self.member._process_joins()  # in place of its thread

    @property
    def allocation(self) -> Assignment | None:
        return decode_worker_state(self.member.protocols()[0][1]).allocation


def alone(mode: Mode = Mode.STATIC, lists: str | None = None) -> Alone:
    return Alone(FakeGroup(), AB, mode, lists)


@pytest.mark.parametrize("mode", Mode)
def test_a_join_carries_every_mode_that_the_worker_understands_from_one_snapshot(mode: Mode) -> None:
    worker = alone(mode)
    sent = worker.member.protocols()
    assert [name for name, _ in sent] == [own.value for own in mode.advertised]
    assert {decode_worker_state(data).config_offset for _, data in sent} == {4}
    assert worker.snapshots == 1


def test_lists_travel_in_every_join_and_in_the_static_entry_only() -> None:
    worker = alone(lists="a a-0")
    for _ in range(2):
        static, *others = [decode_worker_state(data) for _, data in worker.member.protocols()]
        assert static.static_connectors == {"a"}
        assert [(other.static_connectors, other.static_tasks) for other in others] == [(None, None)] * 3
        worker.joined(Mode.STATIC, "a")


@pytest.mark.parametrize("completed_under", ["own", "eager"])
@pytest.mark.parametrize("mode", [Mode.COMPATIBLE, Mode.SESSIONED, Mode.STATIC])
def test_a_cooperative_worker_reports_what_it_holds(mode: Mode, completed_under: str) -> None:
    worker = alone(mode)
    assert worker.allocation is None
    worker.joined(mode if completed_under == "own" else Mode.EAGER, "a a-0 b-0")
    held = worker.allocation
    assert held is not None
    assert Jobs.of(held.connectors, held.tasks) == jobs("a a-0 b-0")
    assert (held.revoked_connectors, held.revoked_tasks, held.delay_ms) == ((), (), 0)
    assert worker.member.protocols()[0][0] == mode.value


def test_an_eager_worker_stops_everything_before_it_joins_again() -> None:
    worker = alone(Mode.EAGER)
    worker.joined(Mode.EAGER, "a-0")
    worker.log.clear()
    worker.member._prepare()  # its thread calls it before a join
    worker.joined(Mode.EAGER, "a")
    assert worker.log == [("revoked", jobs("a-0")), ("assigned", jobs("a"))]


def test_a_cooperative_worker_keeps_what_is_not_revoked_and_applying_an_answer_twice_changes_nothing() -> None:
    worker = alone()
    worker.joined(Mode.STATIC, "a a-0 b-0")
    worker.joined(Mode.STATIC, "a-1", revoked="a b-0")
    assert worker.running == jobs("a-0 a-1")
    worker.joined(Mode.STATIC, "a-1", revoked="a b-0")
    assert worker.running == jobs("a-0 a-1")


def test_a_failed_assignment_keeps_jobs_running_and_asks_for_another_join() -> None:
    worker = alone()
    worker.joined(Mode.STATIC, "a a-0")
    worker.joined(Mode.STATIC, "", error=1, offset=9)
    assert worker.running == jobs("a a-0")
    assert worker.member.needs_rejoin()
    held = worker.allocation
    assert held is not None
    assert held.connectors == ("a",)


def test_a_downgrade_to_eager_stops_first_what_others_may_have_now() -> None:
    worker = alone()
    worker.joined(Mode.STATIC, "a a-0 b-0")
    worker.log.clear()
    worker.joined(Mode.EAGER, "a")
    assert worker.log == [("revoked", jobs("a-0 b-0")), ("assigned", jobs("a"))]


def test_an_upgrade_from_eager_starts_again_in_place_what_was_stopped() -> None:
    worker = alone()
    worker.joined(Mode.EAGER, "a a-0")
    worker.member._prepare()  # its thread calls it before a join
    assert worker.running == NOTHING
    held = worker.allocation
    assert held is not None
    assert Jobs.of(held.connectors, held.tasks) == jobs("a a-0")
    worker.joined(Mode.STATIC, "")
    assert worker.running == jobs("a a-0")


def test_everything_is_stopped_when_nobody_coordinates_the_group() -> None:
    worker = Worker(FakeGroup(), AB)
    worker.group.settle([worker])
    assert worker.running == jobs("a b a-0 a-1 b-0 b-1")
    worker.group.is_away = True
    worker.turn()
    assert worker.running == NOTHING
    assert decode_worker_state(worker.member.protocols()[0][1]).allocation is None
    worker.group.is_away = False
    worker.group.settle([worker])
    assert worker.running == jobs("a b a-0 a-1 b-0 b-1")


# -- groups ----------------------------------------------------------------------------------------------------------


def held(workers: list[Worker]) -> dict[str, str]:
    return shown({f"w{number}": worker.running for number, worker in enumerate(workers, 1)})


@pytest.mark.parametrize(
    ("modes", "spoken"),
    [
        ([Mode.STATIC] * 3, Mode.STATIC),
        ([Mode.STATIC, Mode.STATIC, Mode.SESSIONED], Mode.SESSIONED),
        ([Mode.STATIC, Mode.COMPATIBLE], Mode.COMPATIBLE),
        ([Mode.STATIC, Mode.SESSIONED, Mode.EAGER], Mode.EAGER),
    ],
)
def test_a_group_speaks_what_all_its_workers_understand(modes: list[Mode], spoken: Mode) -> None:
    group = FakeGroup()
    workers = [Worker(group, AB, mode) for mode in modes]
    group.settle(workers)
    assert {worker.member.mode for worker in workers} == {spoken}
    assert sum(len(part) for worker in workers for part in worker.running) == 6


def test_lists_count_for_nothing_while_an_old_worker_is_there_and_again_when_it_has_gone() -> None:
    group = FakeGroup()
    old = Worker(group, AB, Mode.SESSIONED)
    workers = [old, Worker(group, AB), Worker(group, AB, lists="b")]
    group.settle(workers)
    assert workers[2].running - jobs("b")
    assert not workers[2].member.lists_are_in_force
    old.member.stop()
    group.settle(workers[1:])
    assert workers[2].member.lists_are_in_force
    assert workers[2].running == jobs("b")
    assert held(workers[1:])["w1"] == expected(x="a a-0 a-1 b-1 b-0")["x"]


def test_a_follower_that_comes_back_unchanged_starts_no_rebalance() -> None:
    group = FakeGroup()
    workers = [Worker(group, AB), Worker(group, AB)]
    group.settle(workers)
    before = held(workers)
    follower = next(worker for worker in workers if not worker.member.is_leader)
    seen = []
    for _ in range(2):  # what it holds is news the first time
        follower.member.request_rejoin()
        group.settle(workers)
        seen.append(group.rounds)
    assert seen[0] == seen[1]
    assert held(workers) == before


def test_the_leader_knows_owners_until_it_joins_again() -> None:
    group = FakeGroup()
    leader, other = workers = [Worker(group, AB), Worker(group, AB)]
    group.settle(workers)
    assert (leader.member.is_leader, other.member.is_leader) == (True, False)
    assert leader.member.owner_url("a") == "http://worker:8083/"
    assert other.member.owner_url("a") is None
    leader.member.request_rejoin()
    assert leader.member.owner_url("a") is None


def test_a_leader_that_is_behind_assigns_nothing_until_it_has_read_the_config() -> None:
    group = FakeGroup()
    leader = Worker(group, ConfigSnapshot(2, {"a": 2}))
    other = Worker(group, AB)
    for worker in (leader, other, leader, other):
        worker.turn()
    assert (leader.running, other.running) == (jobs("a a-0 a-1"), NOTHING)
    assert leader.member.held is not None
    assert leader.member.held.failed
    assert leader.member.needs_rejoin()
    leader.snapshot = AB
    group.settle([leader, other])
    assert sum(len(part) for worker in (leader, other) for part in worker.running) == 6


def test_a_static_move_never_runs_a_job_twice() -> None:
    group = FakeGroup()
    workers = [Worker(group, AB), Worker(group, AB)]
    group.settle(workers)
    workers.append(Worker(group, AB, lists="a a-0"))
    for _ in range(20):
        for worker in workers:
            worker.turn()
            counts = [len(part) for each in workers for part in each.running]
            union = {job for each in workers for part in each.running for job in part}
            assert len(union) == sum(counts)
    assert workers[2].running == jobs("a a-0")
    assert decode_assignment(group.answers[min(group.answers)]).version == 3


def test_wakeup_before_a_poll_ends_that_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(FakeGroup(), ConfigSnapshot(1))
    worker.turn()
    heartbeats: list[str] = []
    monkeypatch.setattr(FakeCoordinator, "poll_heartbeat", lambda self: heartbeats.append(self.id))
    worker.member.wakeup()
    worker.member.poll(0.02)
    assert len(heartbeats) == 1, "the poll did not wait"
    worker.member.poll(0.02)
    assert len(heartbeats) > 2, "and the next one does"
