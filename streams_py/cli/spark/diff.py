"""The command ``diff``: runs two versions of a topology over the same history on Spark, and compares their outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams_py.cli.options import BOOTSTRAP
from streams_py.cli.spark.history_bar import progress
from streams_py.cli.spark.history_inputs import check_program, check_sources, check_writes, partitions_of, sources_of
from streams_py.cli.spark.history_options import (
    Conf,
    Config,
    Effects,
    GlobalTables,
    InputPaths,
    Master,
    Outputs,
    Partitions,
    Program,
    PyFiles,
    Recount,
    SourceOption,
    Work,
    kafka_options,
    say_frozen,
    settings_from,
    spark_of,
)
from streams_py.cli.spark.outcome import console, explained
from streams_py.cli.usage import FAILED, NOT_DONE
from streams_py.errors import ConfigError

if TYPE_CHECKING:
    from streams_py.spark.history.compare import TopicDifference
    from streams_py.spark.history.run import Results


def diff(
    old: Annotated[str, typer.Argument(help="module:name of the present topology.")],
    new: Annotated[str, typer.Argument(help="module:name of the new topology.")],
    last: Annotated[str | None, typer.Option(help="Compare only the newest outputs, e.g. of 1d, 6h, 30m.")] = None,
    inputs: InputPaths = None,
    partitions: Partitions = None,
    sample: Annotated[int, typer.Option(min=0, help="Number of differing records to show per topic.")] = 5,
    report: Annotated[Path | None, typer.Option(help="Write the result as JSON to this file.")] = None,
    bootstrap: BOOTSTRAP = None,
    config: Config = None,
    outputs: Outputs = None,
    side_effects: Effects = False,
    global_tables: GlobalTables = None,
    recount: Recount = False,
    option: SourceOption = None,
    work: Work = None,
    py_files: PyFiles = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    """Run two versions of a topology over the same history, and compare their outputs.

    Exit status: 0 no output differs; 1 an output differs; 2 wrong usage, or the run failed.
    Needs Java 17 or later and the extra `spark`. Writes nothing but the report.

    Example: streams-py diff old/app.py:build_topology app.py:build_topology --last 1d --report diff.json
    """
    with explained("interrupted; nothing was written", failed=NOT_DONE):
        from streams_py.spark.history.compare import compare_runs

        settings = settings_from(bootstrap, None, config, "diff")
        last_ms = None if last is None else _duration_ms(last)
        _check_report(report)
        programs = [Program(what, settings, outputs or (), side_effects, global_tables) for what in (old, new)]
        for program in programs:
            check_program(program)
            say_frozen(program.topology())
        read, known = _inputs_of(programs, inputs, partitions, option)
        if last_ms is not None:
            _say_needs(programs)
        recounts = _Recounts(f"{old} {new}", whole=recount)
        with spark_of(master, conf, py_files) as spark, progress() as tick:
            found = compare_runs(
                spark,
                old,
                new,
                read.__getitem__,
                config=settings,
                outputs=outputs or (),
                partitions=known,
                allow_side_effects=side_effects,
                global_tables=global_tables,
                last_ms=last_ms,
                sample=sample,
                work=work,
                tick=tick,
                check=recounts.count,
            )
        _say(recounts.texts, found, report)
    raise typer.Exit(FAILED if any(one.only_old or one.only_new for one in found.values()) else 0)


def _inputs_of(
    programs: list[Program], inputs: list[str] | None, partitions: list[str] | None, option: list[str] | None
) -> tuple[Mapping[str, Mapping[str, str | Mapping[str, str]]], Mapping[str, int]]:
    """Return the inputs of each topology, and the partition counts that the user gives."""
    written = check_writes(programs)
    settings = programs[0].settings
    kafka = kafka_options(settings, option)
    read = {program.what: sources_of(program.what, settings, inputs, kafka) for program in programs}
    known = partitions_of(partitions, {topic: given for one in read.values() for topic, given in one.items()}, written)
    check_sources(settings, option, kafka, [given for one in read.values() for given in one.values()])
    return read, known


def _check_report(report: Path | None) -> None:
    """Raise ConfigError if the report cannot be written: fail now, not after hours of work."""
    if report is not None and not report.parent.is_dir():
        raise ConfigError(f"--report {report}: folder {report.parent} does not exist; create it", key="--report")
    if report is not None and report.is_dir():
        raise ConfigError(f"--report {report} is a folder; name a file", key="--report")


class _Recounts:
    """Counts of the input by another client. Records that no version has read would cause no difference."""

    def __init__(self, seed: str, *, whole: bool) -> None:
        self._seed = seed
        self._whole = whole
        self.texts: list[str] = []

    def count(self, results: Results, since_ms: int | None) -> None:
        from streams_py.spark.history.recounted import recount_results

        found = recount_results(results, self._seed, whole=self._whole, until_ms=None, since_ms=since_ms)
        if found is not None and str(found) not in self.texts:
            self.texts.append(str(found))


def _say(counted: list[str], found: Mapping[str, TopicDifference], report: Path | None) -> None:
    """Print the differences, and write the report."""
    out = console()
    for text in counted:
        out.print(text, soft_wrap=True)
    for topic, one in found.items():
        out.print(f"{topic}: {one.same:,} records the same, {one.only_old:,} only old, {one.only_new:,} only new")
        for which, row in one.sample:
            out.print(f"  {which} {row}", soft_wrap=True, markup=False)
    if report is not None:
        report.write_text(json.dumps({topic: one.as_dict() for topic, one in found.items()}, indent=1))


def _say_needs(programs: list[Program]) -> None:
    for program in programs:
        console().print(_reads(program), soft_wrap=True, markup=False)


def _reads(program: Program) -> str:
    """Describe how much input the newest outputs of a topology need."""
    from streams_py.history.needs import history_needed

    what = program.what
    need = history_needed(program.topology(), program.settings)
    if need.retimed:
        listed = ", ".join(need.retimed)
        return f"{what}: reads the whole history, because functions set the timestamps at {listed}"
    if need.before_ms is None:
        listed = ", ".join(need.endless)
        return f"{what}: reads the whole history, because any record may be in the state of {listed}"
    before = f", and {timedelta(milliseconds=need.before_ms)} before, for records in windows" if need.before_ms else ""
    return f"{what}: reads only the newest records{before}"


def _duration_ms(text: str) -> int:
    units = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
    if text[-1:] not in units or not text[:-1].isdecimal():
        raise ConfigError(f"--last {text!r} is not a duration; use for example 1d, 6h or 30m", key="--last")
    return int(text[:-1]) * units[text[-1]]
