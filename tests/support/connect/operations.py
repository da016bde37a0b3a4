"""The steps of the system tests: operations of an operator, and checks after each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.connect.processes import Flow, Workers
from tests.support.waiting import until

_PLUGINS = "tests.support.connect.system_plugins"
_A, _B, _SINK = "source-a", "source-b", "sink"
_TASKS = {_A: 3, _B: 3, _SINK: 2}


class Operations:
    """One group, step by step. Each step ends with a stable group and flowing records."""

    def __init__(self, workers: Workers, flow: Flow) -> None:
        self.workers = workers
        self._flow = flow
        self.mode = "static"
        self._tasks = dict(_TASKS)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def st_1(self) -> None:
        """Three workers in the initial mode, and the connectors."""
        for name in ("w1", "w2", "w3"):
            self.workers.start(name, self.mode)
        for name in (_A, _B):
            self._create(name, f"{_PLUGINS}:SequenceSource", topic=self._flow.topic)
        self._create(_SINK, f"{_PLUGINS}:NotingSink", topics=self._flow.topic)
        self._settle()

    def st_2(self) -> None:
        """The workers become static one by one, without lists."""
        for name in ("w1", "w2", "w3"):
            assert self._group()["protocol"] == self.mode
            self.workers.restart(name, "static")
            self._settle()
        assert self._group()["protocol"] == "static"

    def st_3(self) -> None:
        """A worker lists a connector: only that connector moves."""
        with self._only_moves(_A):
            self.workers.start("w4", connectors=_A)
            self._settle({_A: "w4"})

    def st_4(self) -> None:
        """A worker lists a task."""
        with self._only_moves(f"{_A}-0", balancing=True):
            self.workers.start("w5", tasks=f"{_A}-0")
            self._settle({_A: "w4", f"{_A}-0": "w5"})

    def st_5(self) -> None:
        """A second worker with the same list gets the job as soon as the first one leaves, and keeps it."""
        with self._only_moves():
            self.workers.start("w6", connectors=_A, tasks=f"{_A}-0")
            self._settle({_A: "w4", f"{_A}-0": "w5"})
        with self._only_moves(_A), self._no_delay():
            self.workers.stop("w4")
            self._settle({_A: "w6", f"{_A}-0": "w5"})
        with self._only_moves():
            self.workers.restart("w4")
            self._settle({_A: "w6", f"{_A}-0": "w5"})

    def st_6(self) -> None:
        """A worker without lists stops: its jobs wait, then run on the others. A new leader would not know them."""
        name = next(name for name in ("w3", "w2") if name != self._leader())
        its_jobs = [job for job, worker in self.workers.placement().items() if worker == self.workers.id_of(name)]
        before, static = self.workers.delays(), self._shared()
        with self._only_moves(*its_jobs):
            self.workers.stop(name)
            self._settle(static)
        assert self.workers.delays() > before
        self.workers.restart(name)
        self._settle(static)

    def st_7(self) -> None:
        """Every job is listed: workers without lists run nothing."""
        self.workers.start("w7", connectors=f"{_B},{_SINK}", tasks=f"{_A}-1,{_A}-2,{_SINK}-0")
        self.workers.start("w8", tasks=f"{_B}-0,{_B}-1,{_B}-2,{_SINK}-1")
        self._settle(self._all_static())

    def st_8(self) -> None:
        """Workers without lists leave: no job moves, nothing waits."""
        for name in ("w1", "w2", "w3"):
            with self._only_moves(), self._no_delay():
                self.workers.stop(name)
                self._settle(self._all_static())

    def st_9(self) -> None:
        """The only worker that lists some jobs is killed and restarted: it gets them when it joins."""
        with self._no_delay(), self._only_moves(_B, _SINK, f"{_A}-1", f"{_A}-2", f"{_SINK}-0"):
            self.workers.kill("w7")
            self.workers.restart("w7")
            self._settle(self._all_static())

    def st_10(self) -> None:
        """A worker without lists takes over listed jobs after the delay, and returns them later."""
        self.workers.start("w1")
        self._settle(self._all_static())
        of_w8 = [job for job, name in self._all_static().items() if name == "w8"]
        with self._only_moves(*of_w8):
            self.workers.stop("w8")
            self._settle(self._all_static() | dict.fromkeys(of_w8, "w1"))
        with self._only_moves(*of_w8):
            self.workers.restart("w8")
            self._settle(self._all_static())
        self.workers.stop("w1")
        self._settle(self._all_static())

    def st_11(self) -> None:
        """One worker uses an older protocol: lists apply to no worker until it has been changed back."""
        self.workers.restart("w4", "sessioned")
        self._settle()
        assert self._group()["protocol"] == "sessioned"
        self.workers.restart("w4", "static")
        self._settle()
        assert self._group()["protocol"] == "static"
        placement = self.workers.placement()
        for job, name in self._all_static().items():
            assert placement[job] == self.workers.id_of(name)

    def st_12(self) -> None:
        """A connector that no worker lists runs on no worker, which is reported. Then a worker lists it."""
        self._tasks["extra"] = 1
        self._create("extra", f"{_PLUGINS}:SequenceSource", topic=self._flow.topic)
        until(lambda: [job["job"] for job in self._group()["unassigned"]] == ["extra"], "it has no worker")
        assert "extra" in self.workers.ask("GET", "/connectors")
        assert "extra" not in self.workers.placement()
        assert self._group()["unassigned"][0]["could_run"] == []
        assert 1 in [self._rebalance_metrics(name)["unassignable-jobs"] for name in self.workers.alive]
        assert "jobs run on no worker" in self.workers.logs()
        self.workers.start("w9", connectors="extra", tasks="extra-0")
        self._settle({"extra": "w9", "extra-0": "w9"})

    def st_13(self) -> None:
        """Workers with empty lists or lists of unknown jobs are idle, and answer requests."""
        with self._only_moves():
            self.workers.start("w10", connectors="")
            self.workers.start("w11", tasks="nope-0")
            self._settle()
        runs = {worker["worker_id"]: _all(worker["jobs"]) for worker in self._group()["workers"]}
        for name in ("w10", "w11"):
            assert runs[self.workers.id_of(name)] == set()
            assert sorted(self.workers.ask("GET", "/connectors", of=name)) == sorted(self._tasks)
            self.workers.ask("PUT", f"/connectors/{_SINK}/pause", of=name)
            until(lambda: self._states(_SINK) == {"PAUSED"}, "the sink is paused")
            self.workers.ask("PUT", f"/connectors/{_SINK}/resume", of=name)
            self._settle()
            assert "Traceback" not in self.workers.logs(name)
            self.workers.stop(name)
        self._settle()

    def st_14(self) -> None:
        """Leaders leave one by one, in groups with static workers, with other workers, and with both."""
        for added in ("w1", None, "w2"):
            if added:
                self.workers.start(added)
            else:
                self.workers.stop("w1")
            leader = self._leader()
            if leader not in ("w1", "w2"):
                self.workers.stop(leader)
                until(lambda left=leader: self._leader() != left, "another worker leads")
                self.workers.restart(leader)
            self._settle()
        self.workers.stop("w2")
        self._settle()

    def lose_the_leader(self) -> None:
        """The leader stops, another worker takes over, and it returns: listed jobs are where they were."""
        listed = [job for worker in self._group()["workers"] if worker["static"] for job in _all(worker["static"])]
        before = self.workers.placement()
        left = self._leader()
        shared = {_A, f"{_A}-0"} if left in ("w4", "w5", "w6") else set()  # the other lister keeps what it took over
        self.workers.stop(left)
        until(lambda: self._leader() != left, "another worker leads")
        self.workers.restart(left)
        self._settle()
        after = self.workers.placement()
        assert {job: after[job] for job in listed if job not in shared} == {
            job: before[job] for job in listed if job not in shared
        }

    def st_15(self) -> None:
        """A listed connector is deleted and created again, and gets more tasks and fewer tasks."""
        config = self.workers.ask("GET", f"/connectors/{_B}/config")
        del self._tasks[_B]
        self.workers.ask("DELETE", f"/connectors/{_B}")
        self._settle()
        for tasks in (2, 3, 1, 3):
            self._tasks[_B] = tasks
            self.workers.ask("PUT", f"/connectors/{_B}/config", config | {"tasks.max": str(tasks)})
            self._settle({_B: "w7"} | {f"{_B}-{number}": "w8" for number in range(tasks)})

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _settle(self, static: dict[str, str] | None = None) -> None:
        """Wait until the group is stable, with all jobs running, and records flow. No job may have run twice.

        Listed jobs must be on the expected workers, and the others evenly distributed.
        """
        wanted = {job: self.workers.id_of(name) for job, name in (static or {}).items()}

        def at_rest() -> bool:
            group = self._group()
            return not group["unassigned"] and len(group["workers"]) == len(self.workers.alive) and self._runs(group)

        until(at_rest, "the group comes to rest", pause_s=0.3)  # each look is work for the workers
        placement = self.workers.placement()
        assert {job: placement[job] for job in wanted} == wanted
        self._check_lists()
        self._check_balance()
        self._flow.check({name: self._tasks[name] for name in (_A, _B) if name in self._tasks})
        self.workers.check_nothing_ran_twice()

    def _runs(self, group: Any) -> bool:
        """Statuses agree with the leader's view."""
        led = {job: worker["worker_id"] for worker in group["workers"] for job in _all(worker["jobs"])}
        return group["delay_ms"] == 0 and led.keys() == set(self._jobs()) and self.workers.placement() == led

    def _check_lists(self) -> None:
        group = self._group()
        if group["protocol"] != "static":
            return
        listed: set[str] = set()
        for worker in group["workers"]:
            if worker["static"] is not None:
                listed |= _all(worker["static"])
        for worker in group["workers"]:
            runs = _all(worker["jobs"])
            if worker["static"] is None:
                assert not runs & listed, f"{worker['worker_id']} has no lists and runs {runs & listed}"
            else:
                assert runs <= _all(worker["static"]), worker

    def _check_balance(self) -> None:
        group = self._group()
        in_force = group["protocol"] == "static"
        free = [w for w in group["workers"] if not in_force or w["static"] is None]
        for kind in ("connectors", "tasks"):
            counts = [len(worker["jobs"][kind]) for worker in free]
            assert not counts or max(counts) - min(counts) <= 1, (kind, group)

    @contextmanager
    def _only_moves(self, *jobs: str, balancing: bool = False) -> Iterator[None]:
        """Inside, only these jobs are restarted, and with ``balancing`` one more job for even loads."""
        before = len(self.workers.events())
        yield
        started = Counter(job for event, _, job in self.workers.events()[before:] if event == "start")
        others = started.keys() - set(jobs)
        assert started.keys() >= set(jobs), f"{set(jobs) - started.keys()} did not start"
        assert len(others) <= (1 if balancing else 0), f"{sorted(others)} were started, too"
        assert all(count == 1 for count in started.values()), started

    @contextmanager
    def _no_delay(self) -> Iterator[None]:
        before = self.workers.delays()
        yield
        assert self.workers.delays() == before, self.workers.said()

    # -- small things --------------------------------------------------------------------------------------------------

    def _group(self) -> Any:
        return self.workers.ask("GET", "/workers")

    def _leader(self) -> str:
        (leader,) = (worker["worker_id"] for worker in self._group()["workers"] if worker["leader"])
        return next(name for name, worker in self.workers.alive.items() if worker.id == leader)

    def _rebalance_metrics(self, name: str) -> Any:
        return self.workers.ask("GET", "/metrics", of=name)["connect-worker-rebalance-metrics"]

    def _states(self, connector: str) -> set[str]:
        status = self.workers.ask("GET", f"/connectors/{connector}/status")
        return {status["connector"]["state"], *(task["state"] for task in status["tasks"])}

    def _jobs(self) -> list[str]:
        return [*self._tasks, *(f"{name}-{n}" for name, tasks in self._tasks.items() for n in range(tasks))]

    def _all_static(self) -> dict[str, str]:
        tasks_of_w8 = {f"{_B}-0", f"{_B}-1", f"{_B}-2", f"{_SINK}-1"}
        return {job: "w8" if job in tasks_of_w8 else "w7" for job in self._jobs()} | self._shared()

    def _shared(self) -> dict[str, str]:
        """Return the workers of jobs that several workers list. Such jobs stay on one of them."""
        listers = {_A: ("w4", "w6"), f"{_A}-0": ("w5", "w6")}
        names = {worker.id: name for name, worker in self.workers.alive.items()}
        placement = self.workers.placement()
        return {job: names[placement[job]] for job, of in listers.items() if names[placement[job]] in of}

    def _create(self, name: str, connector: str, **config: str) -> None:
        config = {
            "connector.class": connector, "tasks.max": str(self._tasks[name]), "folder": str(self.workers.folder),
            **config,
        }  # fmt: skip
        self.workers.ask("POST", "/connectors", {"name": name, "config": config})


def _all(jobs: dict[str, list[str]]) -> set[str]:
    return {*jobs["connectors"], *jobs["tasks"]}
