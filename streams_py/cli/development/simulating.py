"""``streams-py simulate``: whole groups in virtual time, with faults."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from streams_py.assignment.assignors.registry import choose_assignor
from streams_py.cli.options import PROCESSES, SEED
from streams_py.cli.usage import RefusedError, refusing
from streams_py.config.files import read_config_file
from streams_py.testing.checkers import PROMISES
from streams_py.testing.simulator import ASSIGNORS, MUTANTS, RunResult, run_schedule
from streams_py.testing.simulator.campaign import Campaign, run_campaign, schedule_of
from streams_py.testing.simulator.known_bugs import KNOWN_BUGS
from streams_py.testing.simulator.schedule import Schedule
from streams_py.testing.simulator.shrink import shrink

_SHOWN_MAX = 10

_ASSIGNOR = Annotated[
    str | None,
    typer.Option(
        help="Run all groups with this assignor: package.module:Class for your own, or high_availability, "
        "legacy_sticky, sticky, fallback, static, custom (an assignor that may fail). Default: a mixture."
    ),
]
_CONFIG = Annotated[
    Path | None,
    typer.Option(help="The application's settings (.toml or .properties), passed to your assignor's configure()."),
]
_EVICTIONS = Annotated[
    bool,
    typer.Option(
        "--evictions",
        help="Let clients also remove members of other processes: dead members (soon, late, or several times), living "
        "members by mistake, and any members in hostile requests.",
    ),
]
_KEEP = Annotated[
    str | None, typer.Option(help="With --replay: run only these actions, numbered as in a finding, e.g. 3,8,11.")
]


@refusing
def simulate(
    schedules: Annotated[int, typer.Option("--schedules", "-n", min=1, help="Number of schedules to run.")] = 200,
    seed: SEED = 1,
    assignor: _ASSIGNOR = None,
    mutant: Annotated[
        str | None, typer.Option(help="Plant a bug that the run must find. --mutant list shows all of them.")
    ] = None,
    config: _CONFIG = None,
    evictions: _EVICTIONS = False,
    known_bugs: Annotated[
        bool, typer.Option("--known-bugs", help="Replay known bugs of Kafka Streams, listed by ticket.")
    ] = False,
    replay: Annotated[
        int | None, typer.Option(help="Run the schedule of one seed and print its whole history.")
    ] = None,
    keep: _KEEP = None,
    shorten: Annotated[
        bool,
        typer.Option("--shorten/--no-shorten", help="Search for the shortest history that repeats the first finding."),
    ] = True,
    processes: PROCESSES = None,
) -> int:
    """Test whole groups of real leaders and members in virtual time, with faults of every kind.

    Members join, leave, die, freeze and send wrong data. Brokers fail at every step. Releases are mixed and upgraded
    one by one. While faults occur, nothing may happen that is [bold]never[/bold] allowed (safety). Then the faults
    stop, and the group must become stable with every task running ([bold]liveness[/bold]).

    Exit status: 0 nothing found; 1 safety violated; 4 only liveness violated; 2 wrong usage.

    Examples:

      streams-py simulate -n 2000

      streams-py simulate -n 2000 --evictions

      streams-py simulate -n 500 --assignor my_package.assignors:Mine

      streams-py simulate --replay 4711 --keep 0,5

      streams-py simulate -n 50 --mutant "hand over too early"

      streams-py simulate --known-bugs
    """
    if known_bugs:
        return play_known_bugs()
    if mutant == "list":
        list_mutants()
        return 0
    if keep is not None and replay is None:
        raise RefusedError("--keep needs --replay")
    settings = {} if config is None else read_config_file(config)
    _check(assignor, mutant)
    if replay is not None:
        return replay_schedule(
            replay, keep=keep, assignor=assignor, mutant=mutant, settings=settings, evictions=evictions
        )
    return run_schedules(
        range(seed, seed + schedules),
        assignor=assignor,
        mutant=mutant,
        settings=settings,
        evictions=evictions,
        shorten=shorten,
        processes=processes,
    )


def _check(assignor: str | None, mutant: str | None) -> None:
    """Check that the assignor and the planted bug exist. Searches the current folder for the user's own assignor.

    Raises:
        AssignorError: The user's assignor cannot be loaded.
        RefusedError: One of them does not exist.
    """
    if assignor is not None and ":" in assignor:
        sys.path.insert(0, str(Path.cwd()))  # not removed, because worker processes inherit the path
        choose_assignor(assignor)
    elif assignor is not None and assignor not in ASSIGNORS:
        raise RefusedError(
            f"unknown assignor {assignor!r}; use package.module:Class, or one of: {', '.join(ASSIGNORS)}"
        )
    if mutant is not None and mutant not in MUTANTS:
        raise RefusedError(f"unknown planted bug {mutant!r}; streams-py simulate --mutant list lists them")


def list_mutants() -> None:
    """Print the planted bugs."""
    print("planted bugs, each with the promise that it breaks:")
    for name, planted in MUTANTS.items():
        print(f"  {planted.promise:4} {name}")


def play_known_bugs() -> int:
    """Replay the situations of known bugs and report. Returns the exit status."""
    console = Console(highlight=False)
    results = []
    for ticket, known_bug in KNOWN_BUGS.items():
        played = [run_schedule(schedule) for schedule in known_bug.schedules]
        broken = [violation for result in played for violation in result.violations]
        verdict = f"[red]{escape(str(broken[0]))}[/red]" if broken else "[green]not repeated[/green]"
        rebalances = sum(result.rebalances for result in played)
        console.print(f"{ticket}: {known_bug.what}: {verdict} ({len(played)} schedules, {rebalances} rebalances)")
        results += played
    if all(result.safe for result in results):
        return 4 if any(result.violations for result in results) else 0
    return 1


def run_schedules(
    seeds: range,
    *,
    assignor: str | None,
    mutant: str | None,
    settings: Mapping[str, object],
    evictions: bool,
    shorten: bool,
    processes: int | None,
) -> int:
    """Run the schedules of these seeds and report. Returns the exit status."""
    console = Console(highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        shown = bar.add_task("schedules", total=len(seeds))

        def progress(so_far: Campaign) -> None:
            found = f", {len(so_far.findings)} with violations" if so_far.findings else ""
            bar.update(shown, completed=so_far.schedules, description=f"{so_far.rebalances:,} rebalances{found}")

        campaign = run_campaign(
            seeds,
            assignor=assignor,
            mutant=mutant,
            settings=settings,
            evictions=evictions,
            processes=processes,
            progress=progress,
        )
    _report(console, campaign)
    if campaign.findings and shorten and not campaign.hung:
        schedule = schedule_of(
            campaign.findings[0].seed, assignor=assignor, mutant=mutant, settings=settings, evictions=evictions
        )
        _show_shortest(console, schedule, assignor=assignor, evictions=evictions)
    return campaign.exit_code


def _report(console: Console, campaign: Campaign) -> None:
    faults = Table("fault", "times", box=None, header_style="bold")
    for fault, times in sorted(campaign.faults.items(), key=lambda item: (-item[1], item[0].value)):
        faults.add_row(fault.value, f"{times:,}")
    console.print(faults)
    looked = Table("promise", Column("checks", justify="right"), "what it says", box=None, header_style="bold")
    for promise, says in PROMISES.items():
        looked.add_row(promise, f"{campaign.checked[promise]:,}", says)
    console.print("", looked)
    rate = campaign.schedules / campaign.seconds if campaign.seconds else 0.0
    console.print(
        f"\n{campaign.schedules:,} schedules, {campaign.rebalances:,} rebalances, {campaign.events:,} events, "
        f"{campaign.virtual_ms / 3_600_000:,.1f} hours of virtual time in {campaign.seconds:.1f} s "
        f"({rate:.1f} schedules/s)"
    )
    console.print(f"{campaign.repeated} schedules were run twice, under different hash seeds")
    if campaign.oscillating:
        console.print(f"sticky assignors oscillated in {campaign.oscillating} schedules, as Kafka Streams' may")
    if not campaign.findings:
        console.print("[green]no violation[/green]")
        return
    safety = sum(not finding.safe for finding in campaign.findings)
    console.print(
        f"[red]{len(campaign.findings)} schedules with violations[/red]: {safety} of safety, "
        f"{len(campaign.findings) - safety} of liveness only"
    )
    for finding in campaign.findings[:_SHOWN_MAX]:
        first = finding.violations[0]
        more = f" (and {len(finding.violations) - 1} more)" if len(finding.violations) > 1 else ""
        console.print(f"  seed {finding.seed}: {first}{more}", markup=False)
    failed = next((v.traceback for finding in campaign.findings for v in finding.violations if v.traceback), "")
    if failed:
        console.print(f"\nfirst error of the assignor:\n{failed}", markup=False, soft_wrap=True)
    if campaign.hung:
        console.print("[red]the assignor does not return[/red]; no schedule was run after that")


def _show_shortest(console: Console, schedule: Schedule, *, assignor: str | None, evictions: bool) -> None:
    with console.status("searching for the shortest history"):
        try:
            shortest, _ = shrink(schedule, runs_max=120)
        except ValueError:
            console.print(f"seed {schedule.seed} does not fail in this process: it depends on the hash seed")
            return
    console.print(f"\nshortest history of seed {schedule.seed}: {len(shortest.actions)} actions", markup=False)
    _tell(console, run_schedule(shortest, history=True))
    kept = ",".join(map(str, shortest.kept if shortest.kept is not None else range(len(shortest.actions))))
    options = f" --assignor {assignor}" if assignor else ""
    options += f' --mutant "{schedule.mutant}"' if schedule.mutant else ""
    options += " --evictions" if evictions else ""
    options += " and the same --config" if schedule.shape.settings else ""
    console.print(f"again: streams-py simulate --replay {schedule.seed} --keep {kept or 'none'}{options}", markup=False)


def _tell(console: Console, result: RunResult) -> None:
    shape = result.schedule.shape
    console.print(
        f"  topology {shape.topology} over {dict(shape.partitions)}, assignor {shape.assignor}, "
        f"{len(shape.processes)} processes at the start",
        markup=False,
    )
    for line in result.history:
        console.print(f"  {line}", markup=False)
    for violation in result.violations:
        console.print(f"  -> {violation}", markup=False, style="red")
        if violation.traceback:
            console.print(violation.traceback, markup=False)


def replay_schedule(
    seed: int,
    *,
    keep: str | None,
    assignor: str | None,
    mutant: str | None,
    settings: Mapping[str, object],
    evictions: bool,
) -> int:
    """Run one schedule and print its history. Returns the exit status."""
    console = Console(highlight=False, soft_wrap=True)
    schedule = schedule_of(seed, assignor=assignor, mutant=mutant, settings=settings, evictions=evictions)
    if keep is not None:
        numbers = [part.strip() for part in keep.split(",") if part.strip() not in ("", "none")]
        if not all(number.isdigit() and int(number) < len(schedule.actions) for number in numbers):
            raise RefusedError(f"--keep takes numbers from 0 to {len(schedule.actions) - 1}, separated by commas")
        schedule = schedule.keeping(tuple(map(int, numbers)))
    for number, action in enumerate(schedule.actions):
        console.print(f"  {number:3}  {action}", markup=False)
    result = run_schedule(schedule, history=True)
    _tell(console, result)
    if not result.violations:
        console.print("[green]no violation[/green]")
        return 0
    return 1 if not result.safe else 4
