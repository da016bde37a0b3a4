"""``streams-py backtest --live``: other assignors or settings decide for a running group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from streams_py.backtest.kernel import Orders
from streams_py.backtest.live.deciding import Move, Outcome, outcomes
from streams_py.backtest.live.reading import Present, present_situation
from streams_py.backtest.terminal import COLUMNS, TITLES, score_text
from streams_py.cli.connecting import connected
from streams_py.cli.groups.settings import assumed_settings
from streams_py.cli.usage import refuse
from streams_py.errors import StreamsError
from streams_py.system.markup import plain_text
from streams_py.system.printable import printable_json

_UNUSABLE: Final = 1
_MOVES_SHOWN_MAX: Final = 20
_REMEDY: Final = (
    "One situation shows what would happen now, not which assignor is better. Record the group's rebalances "
    "(assignment.events.level) and run streams-py backtest --tables on them."
)


def decide_live(
    group: str,
    bootstrap: str | None,
    config: Path | None,
    *,
    assumed: Iterable[str] | None,
    orders: Orders,
    as_json: bool,
) -> int:
    """Print what each candidate would decide. Returns the exit status. Joins no group."""
    try:
        configs = assumed_settings(group, config, assumed, "--assume")
        with connected(bootstrap, config, "streams-py-backtest") as cluster:
            present = present_situation(cluster, group, configs=configs)
        found = list(outcomes(present.situation, orders))
    except StreamsError as error:
        return refuse(error)
    if as_json:
        print(printable_json(to_json(present, found)))
    else:
        _print(Console(highlight=False, soft_wrap=True), present, found)
    return 0 if all(outcome.is_usable for outcome in found) else _UNUSABLE


def _print(console: Console, present: Present, found: Sequence[Outcome]) -> None:
    situation = present.situation
    console.print(
        f"[bold]{plain_text(present.group)}[/bold] now: {len(situation.clients):,} clients, "
        f"{situation.task_count:,} tasks"
    )
    for name, letter in present.labels.items():
        console.print(f"  {letter} is {plain_text(present.members[name])}")
    for text in present.assumed:
        console.print(f"  {plain_text(text)}")
    for scenario in dict.fromkeys(outcome.scenario for outcome in found):
        mine = [outcome for outcome in found if outcome.scenario == scenario]
        console.print(_table(scenario, mine))
        for outcome in mine:
            console.print(f"{plain_text(outcome.candidate)}: {plain_text(_outcome_text(outcome, present.labels))}")
    console.print(_REMEDY)


def _table(scenario: str, found: Sequence[Outcome]) -> Table:
    """A row for each metric and a column for each candidate: this fits an ordinary terminal."""
    title = f"what if {scenario}" if scenario else "a rebalance now, until the group is stable"
    table = Table(title=plain_text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for outcome in found:
        table.add_column(plain_text(outcome.candidate), justify="right", overflow="fold")
    for metric in COLUMNS:
        scores = [outcome.scores.get(metric) for outcome in found]
        if any(value is not None for value in scores):
            table.add_row(TITLES[metric], *("" if f is None else score_text(metric, f) for f in scores))
    return table


def _outcome_text(outcome: Outcome, labels: Mapping[str, str]) -> str:
    if not outcome.is_usable:
        return f"cannot be used here: {outcome.error}"
    if "rounds" not in outcome.scores:
        return "the present assignment"
    rounds = outcome.scores["rounds"]
    rest = f"after {rounds} rebalance{'s' * (rounds != 1)}" if outcome.scores["stable"] else "and not stable by then"
    if not outcome.moves:
        return f"every task stays where it is, {rest}"
    shown = ", ".join(_move(move, labels) for move in outcome.moves[:_MOVES_SHOWN_MAX])
    more = len(outcome.moves) - _MOVES_SHOWN_MAX
    return f"{shown}{f' and {more:,} more' if more > 0 else ''}, {rest}"


def _move(move: Move, labels: Mapping[str, str]) -> str:
    before = "no member" if move.before is None else labels.get(move.before, move.before)
    return f"{move.task} {before} -> {labels.get(move.after, move.after)}"


def to_json(present: Present, found: Iterable[Outcome]) -> dict[str, Any]:
    """Return the outcomes as plain values: clients by process id, null for unknown values."""
    return {
        "group": present.group,
        "clients": {name: {"label": present.labels[name], "who": who} for name, who in present.members.items()},
        "assumed": list(present.assumed),
        "configs": dict(present.situation.configs),
        "outcomes": [
            {
                "candidate": outcome.candidate,
                "scenario": outcome.scenario,
                "valid": outcome.valid,
                "error": outcome.error,
                "figures": dict(outcome.scores),
                "moves": [{"task": str(move.task), "from": move.before, "to": move.after} for move in outcome.moves],
            }
            for outcome in found
        ],
    }
