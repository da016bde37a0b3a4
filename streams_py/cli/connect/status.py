"""``streams-py connect status``: requests the status from a worker and shows jobs by workers."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streams_py.cli.usage import refuse
from streams_py.config.secrets import redact
from streams_py.http.answers import bound_answers
from streams_py.http.deadlines import bound_duration
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.printable import printable_json, printable_values

_TIMEOUT_S: Final = 30.0
_ANSWER_BYTES_MAX: Final = 64 << 20
_MESSAGE_CHARS_MAX: Final = 200
_CELL: Final = 12
_JOB_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class _Job:
    """A connector or task.

    ``worker`` is None if no worker runs it; ``listers`` are the workers that list it.
    """

    kind: str
    name: str
    worker: str | None
    state: str
    listers: frozenset[str]


def show_status(url: str, *, as_json: bool, ca_file: Path | None = None, certificate_file: Path | None = None) -> int:
    """Print the status.

    Returns the exit status. ``url`` may contain user and password, or be ``unix:/path``.
    """
    try:
        with _client(url, ca_file, certificate_file) as client:
            bound_answers(client, 2 * _ANSWER_BYTES_MAX)  # _get() stops earlier, with a better message
            bound_duration(client, _TIMEOUT_S)
            url = redact(url)
            group, connectors = _get(client, "/workers"), _get(client, "/connectors?expand=status")
        jobs = _jobs(group, connectors)
    except (KeyError, TypeError, AttributeError, RecursionError):
        return refuse(f"the server at {url} is not a Connect worker; name a worker with --url")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        why = redact(str(error)).rstrip(".") or type(error).__name__
        return refuse(f"no worker answers at {redact(url)}: {why}; name a worker with --url")
    except OSError as error:  # from reading the two files
        return refuse(f"--ca-location or --certificate-location cannot be used: {error.strerror or error}")
    if as_json:
        print(printable_json(_content(group, jobs)))
    else:
        _print(group, jobs)
    return 0 if all(job.worker and job.state != "FAILED" for job in jobs) else 1


def _client(url: str, ca_file: Path | None, certificate_file: Path | None) -> httpx.Client:
    context = ssl.create_default_context(cafile=ca_file)
    if certificate_file is not None:
        context.load_cert_chain(certificate_file)
    if url.startswith("unix:"):
        transport = httpx.HTTPTransport(uds=urlsplit(url).path)
        return httpx.Client(base_url="http://localhost", timeout=_TIMEOUT_S, trust_env=False, transport=transport)
    return httpx.Client(base_url=url.rstrip("/"), timeout=_TIMEOUT_S, trust_env=False, verify=context)


def _get(client: httpx.Client, path: str) -> Any:
    with client.stream("GET", path) as answer:
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > _ANSWER_BYTES_MAX:
                raise ValueError(f"its response to {path} is longer than {_ANSWER_BYTES_MAX:,} bytes")
    if not answer.is_success:
        raise ValueError(f"{answer.status_code} {_message(body)}")
    # Users who may create connectors choose their names, so control characters are escaped.
    return printable_values(loads_foreign(bytes(body)))


def _message(body: bytearray) -> str:
    try:
        return str(loads_foreign(bytes(body))["message"])[:_MESSAGE_CHARS_MAX]
    except (ValueError, KeyError, TypeError):
        return body[:_MESSAGE_CHARS_MAX].decode(errors="replace")


def _jobs(group: Any, connectors: Any) -> list[_Job]:
    """Return connectors and tasks, each connector before its tasks."""
    states: dict[tuple[str, str], str] = {}
    for name, known in connectors.items():
        states["connectors", name] = known["status"]["connector"]["state"]
        for task in known["status"]["tasks"]:
            states["tasks", f"{name}-{task['id']}"] = task["state"]
    owners: dict[tuple[str, str], str | None] = {(f"{job['kind']}s", job["job"]): None for job in group["unassigned"]}
    listers: dict[tuple[str, str], set[str]] = {}
    for worker in group["workers"]:
        for kind in ("connectors", "tasks"):
            owners |= dict.fromkeys(((kind, job) for job in worker["jobs"][kind]), worker["worker_id"])
            for job in (worker["static"] or {}).get(kind, ()):
                listers.setdefault((kind, job), set()).add(worker["worker_id"])
    jobs = [
        _Job(kind, name, owner, states.get((kind, name), "") if owner else "", frozenset(listers.get((kind, name), ())))
        for (kind, name), owner in owners.items()
    ]
    return sorted(jobs, key=_order)


def _order(job: _Job) -> tuple[str, int]:
    if job.kind == "connectors":
        return job.name, -1
    name, _, number = job.name.rpartition("-")
    return name, int(number) if number.isdecimal() else -1


def _content(group: Any, jobs: list[_Job]) -> Any:
    return {
        "protocol": group["protocol"],
        "workers": [
            {"worker_id": worker["worker_id"], "leader": worker["leader"], "static": worker["static"]}
            for worker in group["workers"]
        ],
        "jobs": [
            {
                "kind": job.kind.removesuffix("s"),
                "job": job.name,
                "worker_id": job.worker,
                "state": job.state or None,
                "listed_by": sorted(job.listers),
            }
            for job in jobs
        ],
        "unassigned": group["unassigned"],
    }


def _print(group: Any, jobs: list[_Job]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    workers = group["workers"]
    static = sum(worker["static"] is not None for worker in workers)
    counts = f"{len(workers)} workers ({static} static), {len(jobs)} jobs"
    console.print(f"{counts}, protocol {group['protocol']}", markup=False)
    if jobs:
        fits = min(_JOB_MAX, max(len(job.name) for job in jobs)) + len(workers) * (_CELL + 2) <= console.width
        console.print(_matrix(workers, jobs) if fits else _list(jobs))
    for job in group["unassigned"]:
        could = ", ".join(job["could_run"]) or "no worker"
        sentence = f"{job['kind']} {job['job']} has no worker: {job['reason']} (could run it: {could})"
        console.print(sentence, markup=False)


def _matrix(workers: Any, jobs: list[_Job]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("job", no_wrap=True, max_width=_JOB_MAX)
    for worker in workers:
        roles = [role for role, has in (("leader", worker["leader"]), ("static", worker["static"] is not None)) if has]
        table.add_column(Text("\n".join([worker["worker_id"], *roles])), min_width=_CELL, overflow="fold")
    for job in jobs:
        cells = [_cell(job, worker["worker_id"]) for worker in workers]
        table.add_row(*map(Text, (_indented(job), *cells)))
    return table


def _cell(job: _Job, worker: str) -> str:
    """The state if the worker runs the job, and * if the worker lists it."""
    mark = "*" if worker in job.listers else ""
    return " ".join(part for part in ((job.state or "-") if job.worker == worker else "", mark) if part)


def _list(jobs: list[_Job]) -> Table:
    """The table for more workers than fit side by side."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in ("job", "worker", "state", "listed by"):
        table.add_column(name, overflow="fold", no_wrap=name != "listed by")
    for job in jobs:
        worker = (job.worker or "") + (" *" if job.worker in job.listers else "")
        table.add_row(*map(Text, (_indented(job), worker, job.state, ", ".join(sorted(job.listers)))))
    return table


def _indented(job: _Job) -> str:
    return job.name if job.kind == "connectors" else f"  {job.name}"
