"""``streams-py explain --from``: explains the tasks of a described or recorded group."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import typer

from streams_protocol import LATEST_OFFSET
from streams_protocol.errors import ProtocolError
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment.application_state import ProblemState, TaskDescription
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput, lag_from_offsets
from streams_py.cli.groups.explanations import Explainer, explainer_named
from streams_py.cli.groups.recordings import recorded_explanations
from streams_py.cli.usage import refuse
from streams_py.errors import StreamsError
from streams_py.inspection.labels import named
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.printable import printable_json, printable_lines


def explain_tasks(task: str | None, file: Path, *, case: str | None, assignor: str | None, as_json: bool) -> int:
    """Print the explanation of one task, or of all tasks. Returns the exit status."""
    try:
        wanted = None if task is None else TaskId.parse(task)
    except ValueError as error:
        return refuse(error)
    names: Mapping[ProcessId, str] = {}
    try:
        if file.name.endswith((".jsonl", ".jsonl.gz")):
            explanations, names = recorded_explanations(file, case, assignor)
        else:
            described = loads_foreign(file.read_text(encoding="utf-8"))
            problem, tell, names = group_of(described | {"assignor": assignor} if assignor else described)
            explanations = tell(problem, ProblemState(problem, partial(_tasks, problem)))
    except FileNotFoundError:
        return refuse(f"{file} does not exist; streams-py explain --help shows an example")
    except OSError as error:
        return refuse(f"{file} cannot be read: {error.strerror or error}")
    except KeyError as error:
        return refuse(f"{file}: {error} is missing; streams-py explain --help shows an example")
    except UnicodeDecodeError:
        return refuse(f"{file} cannot be read: it is not UTF-8 text")
    except (TypeError, AttributeError):
        return refuse(f"{file}: not a description of a group; streams-py explain --help shows an example")
    except (ValueError, RecursionError, StreamsError, ProtocolError) as error:
        return refuse(f"{file}: {error}")
    if wanted is not None and wanted not in explanations:
        known = ", ".join(map(str, sorted(explanations))) or "(no tasks)"
        return refuse(f"task {wanted} does not exist; tasks: {known}")
    chosen = [explanations[wanted]] if wanted is not None else [explanations[each] for each in sorted(explanations)]
    if as_json:
        typer.echo(printable_json([plain(explanation) for explanation in chosen]))
    else:
        typer.echo(printable_lines(named("\n".join(map(str, chosen)), names)))
    return 0


def plain(value: object) -> object:
    """Return an explanation as JSON values."""
    if isinstance(value, TaskId | ProcessId):
        return str(value)
    if isinstance(value, Enum):
        return value.name.lower()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


# -- a described group ---------------------------------------------------------------------------------------


def _tasks(problem: AssignmentProblem) -> Iterator[TaskDescription]:
    """Tasks in the form of the public assignor API.

    Every sub-topology has one input, and a store if it has state.
    """
    for task in problem.tasks:
        logged = task in problem.end_offset_sums
        yield TaskDescription.of(
            task,
            stores=("store",) if logged else (),
            sources=(TopicPartition(f"input-{task.subtopology}", task.partition),),
            changelogs=(TopicPartition(f"changelog-{task.subtopology}", task.partition),) if logged else (),
        )


def group_of(described: Mapping[str, Any]) -> tuple[AssignmentProblem, Explainer, dict[ProcessId, str]]:
    """Return (problem, explainer, names of the clients) of a described group.

    Raises:
        ValueError: A value is not valid.
        KeyError: A required key is missing.
    """
    configs = described.get("configs", {})
    tell = explainer_named(described.get("assignor", "high_availability"), configs)
    tasks = {TaskId.parse(text): end for text, end in described["tasks"].items()}
    ends = {task: int(end) for task, end in tasks.items() if end is not None}
    names: dict[ProcessId, str] = {}
    clients = []
    for number, (name, client) in enumerate(described["clients"].items(), 1):
        process_id = _process_id(name, number)
        names[process_id] = name
        clients.append(_client(process_id, client, ends))
    problem = AssignmentProblem(clients, sorted(tasks), ends, AssignmentConfigs.of(configs))
    return problem, tell, names


def _process_id(name: str, number: int) -> ProcessId:
    try:
        return ProcessId.parse(name)
    except ValueError:
        return ProcessId(uuid.UUID(int=number))


def _client(process_id: ProcessId, client: Mapping[str, Any], ends: Mapping[TaskId, int]) -> ClientInput:
    offsets = {
        TaskId.parse(text): LATEST_OFFSET if offset == "running" else int(offset)
        for text, offset in client.get("offsets", {}).items()
    }
    running = {TaskId.parse(text) for text in client.get("running", ())}
    running |= {task for task, offset in offsets.items() if offset == LATEST_OFFSET}
    return ClientInput(
        process_id,
        int(client.get("threads", 1)),
        client.get("tags", {}),
        client.get("rack"),
        sorted(running),
        sorted(offsets.keys() - running),
        {task: lag_from_offsets(offset, ends[task]) for task, offset in offsets.items() if task in ends},
    )
