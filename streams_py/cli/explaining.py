"""``streams-py explain``: stories of tasks, from a described group or a recorded assign step."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.registry import choose_assignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import (
    LATEST_OFFSET,
    AssignmentProblem,
    BuiltInAssignor,
    ClientInput,
    lag_from_offsets,
)
from streams_py.assignment.story import TaskStory
from streams_py.errors import StreamsError
from streams_py.leader import GroupLeader, run_assign

__all__ = ["explain_tasks", "group_of", "stories_of_case", "stories_of_group"]

Stories = dict[TaskId, TaskStory]
_USAGE = 2


def explain_tasks(task: str | None, file: Path, *, case: str | None, as_json: bool) -> int:
    """Print the story of one task, or of all; the exit status."""
    try:
        wanted = None if task is None else TaskId.parse(task)
        names: Mapping[ProcessId, str] = {}
        if file.suffix == ".jsonl":
            stories = stories_of_case(_case(file, case))
        else:
            problem, assignor, names = group_of(json.loads(file.read_text(encoding="utf-8")))
            stories = stories_of_group(problem, assignor)
    except FileNotFoundError:
        typer.echo(f"{file} does not exist; streams-py explain --help shows what to write into it", err=True)
        return _USAGE
    except KeyError as error:
        typer.echo(f"{file}: {error} is missing; streams-py explain --help shows an example", err=True)
        return _USAGE
    except (ValueError, TypeError, AttributeError, StreamsError) as error:
        typer.echo(f"{file}: {error}", err=True)
        return _USAGE
    if wanted is not None and wanted not in stories:
        known = ", ".join(map(str, sorted(stories))) or "none"
        typer.echo(f"there is no task {wanted}; there are: {known}", err=True)
        return 1
    told = [stories[wanted]] if wanted is not None else [stories[each] for each in sorted(stories)]
    if as_json:
        typer.echo(json.dumps([_plain(story) for story in told], indent=2))
    else:
        typer.echo(_named("\n".join(map(str, told)), names))
    return 0


def _named(text: str, names: Mapping[ProcessId, str]) -> str:
    for process_id, name in names.items():
        text = text.replace(str(process_id), name)
    return text


def _plain(value: object) -> object:
    """JSON values of a story."""
    if isinstance(value, TaskId | ProcessId):
        return str(value)
    if isinstance(value, Enum):
        return value.name.lower()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


# -- a described group ---------------------------------------------------------------------------------------


def stories_of_group(problem: AssignmentProblem, assignor: BuiltInAssignor) -> Stories:
    """The story of every task."""
    return dict(assignor.decide(problem, tell_story=True).story)


def group_of(described: Mapping[str, Any]) -> tuple[AssignmentProblem, BuiltInAssignor, dict[ProcessId, str]]:
    """(question, assignor, names of the clients) of a described group; ValueError or KeyError when it is not one."""
    choice = choose_assignor(described.get("assignor", "high_availability"))
    if choice.built_in is None:
        raise ValueError(f"{choice.name} does not tell stories; use high_availability, legacy_sticky or fallback")
    tasks = {TaskId.parse(text): end for text, end in described["tasks"].items()}
    ends = {task: int(end) for task, end in tasks.items() if end is not None}
    names: dict[ProcessId, str] = {}
    clients = []
    for number, (name, client) in enumerate(described["clients"].items(), 1):
        process_id = _process_id(name, number)
        names[process_id] = name
        clients.append(_client(process_id, client, ends))
    problem = AssignmentProblem(clients, sorted(tasks), ends, AssignmentConfigs.of(described.get("configs", {})))
    return problem, choice.built_in(), names


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


# -- a recorded assign step ----------------------------------------------------------------------------------


def _case(file: Path, case_id: str | None) -> Mapping[str, Any]:
    ids = []
    for line in file.read_text(encoding="utf-8").splitlines():
        case: Mapping[str, Any] = json.loads(line)
        ids.append(str(case.get("id")))
        if case_id is None or ids[-1] == case_id:
            return case
    raise ValueError(
        f"there is no case {case_id!r}; there are: {', '.join(ids[:20])}{', ...' if len(ids) > 20 else ''}"
    )


def stories_of_case(case: Mapping[str, Any]) -> Stories:
    """The story of every task of a recorded assign step, as the leader remembers it afterwards."""
    from streams_py.testing.leader_cases import RecordedCluster, case_request, case_settings

    leader = GroupLeader(case_settings(case))
    request = case_request(case)
    run_assign(leader, request, RecordedCluster(case).execute)
    return {told[0].story.task: told[0].story for task in _tasks(leader) if (told := leader.stories.story(task))}


def _tasks(leader: GroupLeader) -> Iterator[TaskId]:
    yield from sorted(leader.stories.tasks())
