"""A group in memory: workers report their assigned jobs, round after round, on a manual clock."""

from __future__ import annotations

from collections.abc import Iterable

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.cooperative import CooperativeAssignor, Member, Round
from streams_py.connect.assignment.jobs import NOTHING, Jobs, configured_jobs, union

D = 300_000


def jobs(text: str = "") -> Jobs:
    """Parse ``"a a-0 b-1"``. A name with a number after the last dash is a task."""
    items = text.split()
    tasks = [item.rpartition("-") for item in items if "-" in item]
    return Jobs.of(
        (item for item in items if "-" not in item), (TaskId(name, int(number)) for name, _, number in tasks)
    )


def connectors(names: str, tasks: int) -> dict[str, int]:
    return dict.fromkeys(names.split(), tasks)


class Group:
    """Workers by name. ``listed[worker]`` is None for a worker without lists. ``sent``: whether lists apply."""

    def __init__(self, configured: dict[str, int], *, delay: int = D, static: bool = False) -> None:
        self.configured = dict(configured)
        self.now = 1_000_000
        self.static = static
        self.delay = delay
        self.new_leader()
        self.held: dict[str, Jobs] = {}
        self.listed: dict[str, Jobs | None] = {}
        self.generation = 0
        self.completed = -1
        self.last: Round | None = None

    def new_leader(self) -> None:
        self.assignor = CooperativeAssignor(self.delay, lambda: self.now)
        self.completed = -1

    def join(self, *names: str, lists: str | None = None, reporting: str = "") -> None:
        for name in names:
            self.held[name] = jobs(reporting)
            self.listed[name] = None if lists is None else jobs(lists)

    def leave(self, *names: str) -> None:
        for name in names:
            del self.held[name], self.listed[name]

    @property
    def all_jobs(self) -> Jobs:
        return configured_jobs(self.configured)

    def round(self, *, wait: int = 0, delivered: bool = True) -> Round:
        """Run a round after ``wait`` ms. If it is not ``delivered``, no worker starts or stops a job."""
        self.now += wait
        self.generation += 1
        members = {name: Member(held, self.listed[name]) for name, held in self.held.items()}
        done = self.assignor.assign(
            self.all_jobs,
            members,
            last_completed_generation=self.completed,
            generation=self.generation,
            static=self.static,
        )
        active = union(self.held.values())
        new = [done.new[name] for name in members]
        assert sum(len(part.connectors) + len(part.tasks) for part in new) == sum(map(len, union(new))), "unique"
        assert not union(new) & active, "none of the new jobs was active"
        for name, held in self.held.items():
            assert held - done.revoked[name] | done.new[name] == done.owned[name]
        if delivered:
            self.held = {name: held - done.revoked[name] | done.new[name] for name, held in self.held.items()}
            self.completed = self.generation
        self.last = done
        return done

    def settle(self, rounds: int = 12) -> int:
        """Run rounds until nothing changes, with the delays of the leader. Fails after too many rounds."""
        for number in range(rounds):
            done = self.round(wait=self.last.delay_ms if self.last else 0)
            if not any(done.new.values()) and not any(done.revoked.values()) and done.delay_ms == 0:
                return number
        raise AssertionError(f"not settled after {rounds} rounds")

    @property
    def counts(self) -> str:
        """Return the numbers of connectors and tasks of the workers, sorted, such as ``0,1/0,4``."""
        held = self.held.values()
        return "/".join(
            ",".join(map(str, sorted(counts)))
            for counts in ((len(part.connectors) for part in held), (len(part.tasks) for part in held))
        )

    @property
    def is_complete(self) -> bool:
        """Check that every job has one owner, and that numbers of a kind differ by at most one."""
        held = list(self.held.values())
        sizes = [(len(part.connectors), len(part.tasks)) for part in held]
        even = all(max(kind) - min(kind) <= 1 for kind in zip(*sizes))
        return even and union(held) == self.all_jobs and sum(map(sum, sizes)) == sum(map(len, self.all_jobs))


def shown(parts: dict[str, Jobs] | object) -> dict[str, str]:
    """Return the workers that have jobs, as text."""
    assert isinstance(parts, dict)
    return {name: " ".join(str(part).split(", ")) for name, part in parts.items() if part != NOTHING}


def expected(**parts: str) -> dict[str, str]:
    return {name: " ".join(str(jobs(text)).split(", ")) for name, text in parts.items()}


def many(prefix: str, numbers: Iterable[int]) -> list[str]:
    return [f"{prefix}{number}" for number in numbers]
