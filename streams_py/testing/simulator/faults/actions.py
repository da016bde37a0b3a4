"""The effect of each kind of fault on a world."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from streams_py.testing.simulator.faults.faults import Fault
from streams_py.testing.simulator.schedule import Action

if TYPE_CHECKING:
    from streams_py.testing.simulator.process import SimulatedProcess
    from streams_py.testing.simulator.thread import SimulatedThread
    from streams_py.testing.simulator.world import World

_LIKELIHOOD: Final = (0.2, 0.5, 1.0)


def execute(world: World, action: Action, thread: SimulatedThread | None) -> bool:
    """Execute an action on ``thread``, or on the target that the action picks; return False without a target."""
    fault = action.fault
    if fault in _LASTING:
        world.note("{} begins", fault.value)
        world.ongoing_faults.start(fault, _LIKELIHOOD[action.amount % 3])
        world.timeline.after(action.lasts_ms, world.ongoing_faults.stop, fault)
        return True
    if fault in _WORLD:
        return _WORLD[fault](world, action)
    process = thread.process if thread is not None else _pick(world, action)
    if process is None:
        return False
    victim = thread or (process.threads[action.pick // 16 % len(process.threads)] if process.threads else None)
    if victim is None:
        return False
    world.note("{}: {}", fault.value, victim.name if fault in _ON_THREAD else process.name)
    if fault in _ON_THREAD:
        _ON_THREAD[fault](world, action, victim)
    else:
        _ON_PROCESS[fault](world, action, process)
    return True


def _pick(world: World, action: Action) -> SimulatedProcess | None:
    alive = [process for process in world.processes if process.alive]
    return alive[action.pick % len(alive)] if alive else None


# -- the whole world -----------------------------------------------------------------------------------------


def _join(world: World, action: Action) -> bool:
    newest, upgrade_from = _release_of_newcomers(world)
    process = world.new_process(threads=1 + action.amount % 2, newest=newest, upgrade_from=upgrade_from)
    if process is not None:
        others = [p.bounces for p in world.processes if (p.alive or p.coming_back) and p is not process]
        process.bounces = min(others, default=0)
        world.note("{} joins with version {}", process.name, newest)
    return process is not None


def _release_of_newcomers(world: World) -> tuple[int, str | None]:
    """Return the release of the least upgraded process."""
    least = _least_upgraded(world)
    if least is None:
        shape = world.shape.processes[0]
        return shape.newest, shape.upgrade_from
    return least.newest, least.upgrade_from


def _least_upgraded(world: World) -> SimulatedProcess | None:
    """Return the least upgraded process that runs or has a planned start."""
    there = [process for process in world.processes if process.alive or process.coming_back]
    return min(there, key=lambda process: (process.bounces, process.number), default=None)


def _lag_jump(world: World, action: Action) -> bool:
    for thread in world.threads:
        thread.observe_running()
    world.cluster.bulk(action.amount, action.pick)
    return True


def _partitions_added(world: World, action: Action) -> bool:
    """Add partitions to a topic whose tasks have no internal topics; otherwise the group would need a manual reset."""
    metadata = world.shape.metadata
    subs = metadata.subtopologies.values()
    free = sorted(
        topic
        for sub in subs
        if not sub.changelogs and not sub.source_changelogs and not sub.sink_topics and not sub.repartition_sources
        for topic in sub.source_topics
    )
    if not free or world.cluster.partitions[free[0]] > 12:
        return False
    topic = free[action.pick % len(free)]
    world.note("{} gets 2 more partitions", topic)
    world.cluster.add_partitions(topic, 2)
    leader = world.coordinator.leader
    for thread in world.threads:
        if thread.consumer.member_id == leader:  # only the leader watches metadata
            thread.later(500, thread.consumer.request_rejoin)
    return True


def _coordinator_moves(world: World, action: Action) -> bool:
    world.note("the coordinator moves")
    world.coordinator.move()
    for thread in world.threads:
        thread.consumer.told_to_rejoin()
    return True


def _hostile(world: World, action: Action) -> bool:
    if sum(not member.gone for member in world.hostile) >= 2:
        return False
    lies = action.fault is Fault.LYING_MEMBER
    world.note("a hostile member joins: {}", "lies" if lies else "garbage")
    member = world.new_hostile(lies=lies)
    world.timeline.after(action.lasts_ms, member.end)
    return True


def _evicted_by_liar(world: World, action: Action) -> bool:
    world.note("a liar removes members")
    world.evictions.lies(1 + action.amount % 5, action.lasts_ms)
    return True


def _assignor(world: World, action: Action) -> bool:
    if world.shape.assignor != "custom":
        return False
    world.note("the assignor: {}", action.behaviour)
    world.assignor_behaviour = action.behaviour

    def recover() -> None:
        world.assignor_behaviour = "good"

    world.timeline.after(action.lasts_ms, recover)
    return True


def _upgrade(world: World, action: Action) -> bool:
    """Bounce the next process. The second bounce starts when all processes have completed the first."""
    process = next_bounce(world)
    if process is None:
        return False
    _bounce(world, process)
    return True


def next_bounce(world: World) -> SimulatedProcess | None:
    """Return the process to upgrade next; None if the upgrade is complete, or must wait for a process that is down."""
    least = _least_upgraded(world)
    return least if least is not None and least.alive and least.bounces < len(world.shape.upgrades) else None


def _bounce(world: World, process: SimulatedProcess) -> None:
    newest, upgrade_from = world.shape.upgrades[process.bounces]
    process.bounces += 1
    process.end(clean=True)
    process.newest, process.upgrade_from = newest, upgrade_from
    world.note("{} is bounced to version {}, upgrade.from {}", process.name, newest, upgrade_from)
    process.start_after(2_000)


# -- one process ---------------------------------------------------------------------------------------------


def _leave(world: World, action: Action, process: SimulatedProcess) -> None:
    process.end(clean=True, leave=action.amount % 2 == 0)


def _kill(world: World, action: Action, process: SimulatedProcess) -> None:
    process.end(clean=False)


def _restart(world: World, action: Action, process: SimulatedProcess) -> None:
    process.end(clean=False)
    process.start_after(action.amount % 15_000)


def _wipe(world: World, action: Action, process: SimulatedProcess) -> None:
    process.end(clean=False)
    process.wipe()
    process.start_after(action.amount % 15_000)


def _evicted_late(world: World, action: Action, process: SimulatedProcess) -> None:
    world.evictions.late(process, action.amount)


def _evicted_twice(world: World, action: Action, process: SimulatedProcess) -> None:
    world.evictions.several_times(process, action.amount)


def _evicted_alive(world: World, action: Action, process: SimulatedProcess) -> None:
    world.evictions.alive(process)


def _tear(world: World, action: Action, process: SimulatedProcess) -> None:
    process.end(clean=False, torn=True)
    process.start_after(action.amount % 15_000)


def _freeze(world: World, action: Action, process: SimulatedProcess) -> None:
    process.freeze()
    world.timeline.after(action.lasts_ms, process.resume)


def _add_thread(world: World, action: Action, process: SimulatedProcess) -> None:
    if process.thread_count < 4 and len(world.threads) < 12:
        process.add_thread()


def _clock_jump(world: World, action: Action, process: SimulatedProcess) -> None:
    process.skew_ms += (action.amount % 60_000) * (1 if action.pick % 2 else -1)


# -- one thread ----------------------------------------------------------------------------------------------


def _kill_thread(world: World, action: Action, thread: SimulatedThread) -> None:
    process = thread.process
    thread.end(clean=False)
    if thread in process.threads:
        process.threads.remove(thread)
    if not process.threads:
        process.alive = False


def _slow(world: World, action: Action, thread: SimulatedThread) -> None:
    thread.stall()
    world.timeline.after(action.lasts_ms, thread.resume)


def _lose_generation(world: World, action: Action, thread: SimulatedThread) -> None:
    thread.consumer.forget_generation()


def _rebalance(world: World, action: Action, thread: SimulatedThread) -> None:
    thread.consumer.request_rejoin()


_LASTING: Final = frozenset(
    {
        Fault.FALSE_OFFSETS,
        Fault.CORRUPT_ASSIGNMENT,
        Fault.DESCRIBE_FAILS,
        Fault.CREATE_FAILS,
        Fault.OFFSETS_FAIL,
        Fault.COMMITTED_FAIL,
        Fault.OFFSETS_MADE_UP,
        Fault.RESTORE_UNANSWERED,
        Fault.RESTORE_MADE_UP,
        Fault.SOURCE_MISSING,
        Fault.SLOW_NETWORK,
        Fault.REPLIES_LOST,
        Fault.EVICTIONS,
    }
)
_WORLD: Final[dict[Fault, Callable[[World, Action], bool]]] = {
    Fault.JOIN: _join,
    Fault.LAG_JUMP: _lag_jump,
    Fault.PARTITIONS_ADDED: _partitions_added,
    Fault.COORDINATOR_MOVES: _coordinator_moves,
    Fault.GARBAGE_MEMBER: _hostile,
    Fault.LYING_MEMBER: _hostile,
    Fault.ASSIGNOR_RAISES: _assignor,
    Fault.ASSIGNOR_HANGS: _assignor,
    Fault.ASSIGNOR_NONSENSE: _assignor,
    Fault.UPGRADE: _upgrade,
    Fault.EVICTED_BY_LIAR: _evicted_by_liar,
}
_ON_PROCESS: Final[dict[Fault, Callable[[World, Action, SimulatedProcess], None]]] = {
    Fault.LEAVE: _leave,
    Fault.KILL: _kill,
    Fault.RESTART: _restart,
    Fault.WIPE: _wipe,
    Fault.CHECKPOINT_TORN: _tear,
    Fault.FREEZE: _freeze,
    Fault.ADD_THREAD: _add_thread,
    Fault.CLOCK_JUMP: _clock_jump,
    Fault.EVICTED_LATE: _evicted_late,
    Fault.EVICTED_TWICE: _evicted_twice,
    Fault.EVICTED_ALIVE: _evicted_alive,
}
_ON_THREAD: Final[dict[Fault, Callable[[World, Action, SimulatedThread], None]]] = {
    Fault.KILL_THREAD: _kill_thread,
    Fault.SLOW: _slow,
    Fault.LOSE_GENERATION: _lose_generation,
    Fault.REBALANCE: _rebalance,
}
