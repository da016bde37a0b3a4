"""Recorded rebalances for ``streams-py explain``.

A file contains either records of an events topic or recorded assign steps.
Each line is a JSON text. The first line shows which of the two the file contains.
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

Names = dict[ProcessId, str]

_IDS_SHOWN_MAX: Final = 20


def recorded_explanations(file: Path, which: str | None, assignor: str | None) -> tuple[Explanations, Names]:
    """Return the explanation of each task, and the names of the clients.

    Args:
        file: Records of an events topic or recorded assign steps, one per line.
        which: Id of an assign step (default: the first), or number of a rebalance from 1 (default: the last).
        assignor: Decides instead of the recorded assignor.

    Raises:
        ValueError: The file does not contain ``which``, or cannot be read.
    """
    opener: Any = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt", encoding="utf-8") as text:
        lines = text.read().splitlines() or ["null"]
    first = loads_foreign(lines[0])
    if isinstance(first, Mapping) and "members" in first and "topology" in first:
        if assignor is not None:
            raise ValueError("recorded assign steps are always decided by their own assignor; remove --assignor")
        return explanations_of_case(_case(lines, which)), {}
    return explanations_of_rebalance(_rebalance(file, which), assignor)


# -- an events topic -----------------------------------------------------------------------------------------


def _rebalance(file: Path, which: str | None) -> str:
    skipped = Skipped()
    texts = list(inputs_in_file(file, skipped))
    if not texts:
        why = f" ({skipped.lines} lines cannot be read; {skipped.reason})" if skipped.lines else ""
        raise ValueError(f"no complete rebalance in the file{why}; write one record of the events topic on each line")
    if which is not None and not (which.isdigit() and 1 <= int(which) <= len(texts)):
        raise ValueError(f"--case {which!r} is not valid; use the number of a rebalance, from 1 to {len(texts)}")
    return texts[int(which) - 1 if which is not None else -1]


def explanations_of_rebalance(text: str, assignor: str | None) -> tuple[Explanations, Names]:
    """Return (explanations, client names) of a recorded situation.

    ``assignor`` decides, or without it the recorded assignor.
    """
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
    raise ValueError(f"case {case_id!r} does not exist; cases: {', '.join(ids[:_IDS_SHOWN_MAX])}{more}")


def explanations_of_case(case: Mapping[str, Any]) -> Explanations:
    """Return the leader's explanation of every task after a recorded assign step."""
    executor = RecordedExecutor(case)
    run_assign(GroupLeader(case_settings(case)), case_request(case), executor.carry_out)
    return {
        found[0].explanation.task: found[0].explanation
        for task in sorted(executor.explanations.tasks())
        if (found := executor.explanations.explanation(task))
    }
