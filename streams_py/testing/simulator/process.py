"""One application instance: threads that share one state directory and run one release."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from streams_protocol.task_list import STATIC_TASKS, TaskList
from streams_protocol.types import ProcessId
from streams_py.testing.simulator.evictions import MembersOnRecord
from streams_py.testing.simulator.models.state import LocalState, SimulatedRestore
from streams_py.testing.simulator.thread import SimulatedThread

if TYPE_CHECKING:
    from streams_py.testing.simulator.world import World

_REPLACE_MS = (1_000, 8_000)  # delay until a failed thread is replaced


class SimulatedProcess:
    """Process number ``number``. The object, and its disk, survive a kill and a restart."""

    def __init__(self, world: World, number: int, *, threads: int, newest: int, upgrade_from: str | None) -> None:
        self.world = world
        self.number = number
        self.name = f"p{number}"
        self.newest = newest
        self.upgrade_from = upgrade_from
        self.bounces = 0
        """Number of completed steps of the upgrade path."""
        self.thread_count = threads
        self.threads: list[SimulatedThread] = []
        self.skew_ms = 0
        self.alive = False
        self.coming_back = False
        """Whether it is down with a planned start."""
        self.process_id = self._random_id()
        self.future_process_id = self._random_id()
        rng = random.Random(f"restore {world.schedule.seed} {number}")
        self.state = LocalState(
            world.timeline,
            world.cluster,
            world.shape.restore_records_per_s,
            SimulatedRestore(world.cluster, world.ongoing_faults, rng, world.mutant),
            world.restored,
        )
        self.on_record = MembersOnRecord(number)
        self._born = 0

    def _random_id(self) -> ProcessId:
        return ProcessId(uuid.UUID(int=self.world.rng.getrandbits(128)))

    @property
    def clock_ms(self) -> int:
        """Time of its wall clock, in ms."""
        return self.world.timeline.now_ms + self.skew_ms

    @property
    def end_point(self) -> str:
        """``application.server``."""
        return f"host{self.number}:{9000 + self.number}" if self.world.shape.end_points else ""

    @property
    def rack(self) -> str | None:
        """``client.rack``."""
        racks = self.world.shape.racks
        return racks[self.number % len(racks)] if racks else None

    @property
    def tags(self) -> Mapping[str, str]:
        """Its client tags."""
        shape = self.world.shape
        tags = {"zone": shape.zones[self.number % len(shape.zones)]} if shape.zones else {}
        if shape.assignor == "static" and self.number % 3 < 2:
            asked = ["0_*"] if self.number % 3 == 0 else [f"{number}_1-3" for number in shape.metadata.subtopologies]
            tags[STATIC_TASKS] = TaskList.to_tag(asked)
        return tags

    @property
    def healthy_threads(self) -> list[SimulatedThread]:
        """Threads that run, neither frozen nor slow."""
        return [thread for thread in self.threads if thread.healthy]

    def start(self) -> None:
        """Start the configured number of threads."""
        self.alive = True
        self.coming_back = False
        self.future_process_id = self._random_id()
        self.world.evictions.started(self)
        for index in range(self.thread_count):
            self._start_thread(index)

    def start_after(self, delay_ms: int) -> None:
        """Start after a delay."""
        self.coming_back = True
        self.world.timeline.after(delay_ms, self.start)

    def add_thread(self) -> None:
        """Start an additional thread."""
        self.thread_count += 1
        self._start_thread(self.thread_count - 1)

    def _start_thread(self, index: int) -> None:
        self._born += 1
        thread = SimulatedThread(self, index, f"{self.name}t{index}x{self._born}")
        self.threads.append(thread)
        thread.consumer.start()

    def end(self, *, clean: bool, leave: bool = False, torn: bool = False) -> None:
        """Stop every thread. ``torn``: the process is killed while it writes checkpoints."""
        self.alive = False
        for thread in self.threads:
            thread.end(clean=clean, leave=leave, torn=torn)
        self.threads.clear()
        if not clean:
            self.world.evictions.killed(self)

    def wipe(self) -> None:
        """Lose the disk, and with it the process id."""
        self.state.wipe()
        self.on_record.lose()
        self.process_id = self._random_id()

    def stop(self) -> None:
        """Stop the process because a member requested a shutdown of the application."""
        self.world.note("application stops on {}", self.name)
        self.end(clean=True)

    def replace_thread(self, thread: SimulatedThread) -> None:
        """Close a failed thread and start a replacement after a delay."""
        if thread in self.threads:
            self.threads.remove(thread)
        thread.end(clean=True)
        delay_ms = self.world.rng.randrange(*_REPLACE_MS)
        if self.world.shape.static_members:  # earlier, it would receive the assignment that made it fail
            delay_ms += self.world.shape.session_timeout_ms
        self.world.timeline.after(delay_ms, self._start_replacement, thread.index)

    def _start_replacement(self, index: int) -> None:
        if any(thread.frozen for thread in self.threads):  # then the whole process is frozen; retry if it may resume
            if not any(thread.doomed for thread in self.threads):
                self.world.timeline.after(_REPLACE_MS[1], self._start_replacement, index)
        elif self.alive and index not in {thread.index for thread in self.threads}:
            self._start_thread(index)

    def freeze(self) -> None:
        """Freeze all threads, as SIGSTOP does."""
        for thread in self.threads:
            thread.freeze()

    def resume(self) -> None:
        """Resume all threads, as SIGCONT does."""
        for thread in self.threads:
            thread.resume()
