"""Recorded rebalances for ``streams-py explain``: records of an events topic, and recorded assign steps.

Each line of a file is a JSON text. Which of the two a file holds shows in its first line.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from streams_protocol.types import ProcessId
from streams_py.backtest.inputs import read_input
from streams_py.backtest.situation import Situation
from streams_py.backtest.sources import Skipped, inputs_in_file
from streams_py.cli.groups.explanations import Explanations, explainer_named
from streams_py.cli.groups.leader_cases import RecordedExecutor, case_request, case_settings
from streams_py.leader import GroupLeader, run_assign
from streams_py.system.foreign_json import loads as loads_foreign

__all__ = ["explanations_of_case", "explanations_of_rebalance", "recorded_explanations"]

Names = dict[ProcessId, str]

_IDS_SHOWN_MAX: Final = 20


def recorded_explanations(file: Path, which: str | None, assignor: str | None) -> tuple[Explanations, Names]:
    """Why each task is where it is, and names for clients. ``which``: the id of an assign step (default: the first), or
    the number of a rebalance, counted from 1 (default: the last). ``assignor`` decides instead of the recorded one.
    ValueError when there is no such thing."""
    opener: Any = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as text:
        lines = text.read().splitlines() or ["null"]
    first = loads_foreign(lines[0])
    if isinstance(first, Mapping) and "members" in first and "topology" in first:
        if assignor is not None:
            raise ValueError("recorded assign steps are decided by their own assignor; leave --assignor out")
        return explanations_of_case(_case(lines, which)), {}
    return explanations_of_rebalance(_rebalance(file, which), assignor)


# -- an events topic -----------------------------------------------------------------------------------------


def _rebalance(file: Path, which: str | None) -> str:
    skipped = Skipped()
    texts = list(inputs_in_file(file, skipped))
    if not texts:
        why = f" ({skipped.lines} lines cannot be read; {skipped.reason})" if skipped.lines else ""
        raise ValueError(f"no complete rebalance in it{why}; write one record of the events topic on each line")
    if which is not None and not (which.isdigit() and 1 <= int(which) <= len(texts)):
        raise ValueError(f"there is no rebalance {which!r}; --case takes a number from 1 to {len(texts)}")
    return texts[int(which) - 1 if which is not None else -1]


def explanations_of_rebalance(text: str, assignor: str | None) -> tuple[Explanations, Names]:
    """(explanations, names of clients) of a recorded situation, decided by ``assignor`` or by who did it then."""
    situation = Situation(read_input(text))
    decision = situation.replay.decision
    name = assignor or (decision.assignor.name if decision is not None else "high_availability")
    tell = explainer_named(name, {})
    return tell(situation.problem, situation.application_state(situation.problem)), situation.names


# -- a recorded assign step ----------------------------------------------------------------------------------


def _case(lines: Sequence[str], case_id: str | None) -> Mapping[str, Any]:
    ids = []
    for line in lines:
        case: Mapping[str, Any] = loads_foreign(line)
        ids.append(str(case.get("id")))
        if case_id is None or ids[-1] == case_id:
            return case
    more = ", ..." if len(ids) > _IDS_SHOWN_MAX else ""
    raise ValueError(f"there is no case {case_id!r}; there are: {', '.join(ids[:_IDS_SHOWN_MAX])}{more}")


def explanations_of_case(case: Mapping[str, Any]) -> Explanations:
    """The explanation of every task of a recorded assign step, as the leader remembers it afterwards."""
    executor = RecordedExecutor(case)
    run_assign(GroupLeader(case_settings(case)), case_request(case), executor.carry_out)
    return {
        found[0].explanation.task: found[0].explanation
        for task in sorted(executor.explanations.tasks())
        if (found := executor.explanations.explanation(task))
    }
