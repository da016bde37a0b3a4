"""The commands and their options; what they do is in the modules beside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from streams_py.cli.connect.commands import app as connect_app
from streams_py.cli.development.torturing import torture
from streams_py.cli.forms import SERDES_ALLOWED, form_named
from streams_py.cli.groups.commands import add_to as add_group_commands
from streams_py.cli.options import BOOTSTRAP_OR_EMBEDDED, CONFIG
from streams_py.cli.panels import ByPanel
from streams_py.cli.running import run as run_command
from streams_py.cli.spark.backtest import app as backtest_app
from streams_py.cli.spark.history import add_to as add_history_commands
from streams_py.cli.spark.telemetry import app as telemetry_app
from streams_py.cli.usage import refuse
from streams_py.config.files import read_config_file
from streams_py.errors import ConfigError

__all__ = ["app"]


class _DescribeByDefault(typer.core.TyperGroup):
    """``streams-py topology app.py`` means ``streams-py topology describe app.py``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["describe", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="streams-py",
    cls=ByPanel,
    help="Kafka Streams for Python: run applications, look at groups, try a change before it goes out.",
    epilog="Each command explains itself: streams-py COMMAND --help",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
topology_app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", cls=_DescribeByDefault)
app.add_typer(topology_app, name="topology", help="Look at a topology: streams-py topology app.py prints it.")
new_typer = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
app.add_typer(new_typer, name="new", help="Make a project to begin with.")
app.command("run")(run_command)
app.add_typer(connect_app, name="connect", help="A group of workers that run connectors.")
# Neither imports Spark before it is needed: without the extra, they say so when they are used.
app.add_typer(telemetry_app, name="telemetry")
app.add_typer(backtest_app(), name="backtest")
app.command()(torture)
add_history_commands(app)
add_group_commands(app)

_PROCESSES = Annotated[int | None, typer.Option("--processes", min=1, help="Worker processes; default: one per core.")]
_SEED = Annotated[int, typer.Option("--seed", help="First seed; the same seed always takes the same course.")]


@app.command()
def simulate(
    schedules: Annotated[int, typer.Option("--schedules", "-n", min=1, help="How many schedules to run.")] = 200,
    seed: _SEED = 1,
    assignor: Annotated[
        str | None,
        typer.Option(
            help="Run all groups with this assignor: package.module:Class for your own, or high_availability, "
            "legacy_sticky, sticky, fallback, static, custom (one that may fail). Default: a mixture."
        ),
    ] = None,
    mutant: Annotated[
        str | None, typer.Option(help="Plant a bug, which must be found; --mutant list names them all.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Settings of the application (.toml or .properties) for your assignor's configure."),
    ] = None,
    known_bugs: Annotated[
        bool, typer.Option("--known-bugs", help="Play known bugs of Kafka Streams again, by their tickets.")
    ] = False,
    replay: Annotated[int | None, typer.Option(help="Run the schedule of one seed and tell its whole history.")] = None,
    keep: Annotated[
        str | None, typer.Option(help="With --replay: only these actions, as a finding lists them, e.g. 3,8,11.")
    ] = None,
    shorten: Annotated[
        bool, typer.Option("--shorten/--no-shorten", help="Look for the shortest history of the first finding.")
    ] = True,
    processes: _PROCESSES = None,
) -> None:
    """Whole groups of real leaders and members in virtual time, while everything goes wrong that can.

    Members join, leave, die, freeze and lie, brokers fail at every step, releases are mixed and rolled. First nothing
    may happen that is [bold]never[/bold] allowed (safety). Then the faults stop, and the group must come to rest with
    every task running ([bold]liveness[/bold]).

    Exit status: 0 nothing found; 1 safety violated; 4 only liveness missed; 2 wrong usage.

    Examples:

      streams-py simulate -n 2000

      streams-py simulate -n 500 --assignor my_package.assignors:Mine

      streams-py simulate --replay 4711 --keep 0,5

      streams-py simulate -n 50 --mutant "hand over too early"

      streams-py simulate --known-bugs
    """
    from streams_py.cli.development.simulating import list_mutants, play_known_bugs, replay_schedule, run_schedules

    if known_bugs:
        raise typer.Exit(play_known_bugs())
    if mutant == "list":
        list_mutants()
        raise typer.Exit
    if keep is not None and replay is None:
        raise typer.Exit(refuse("--keep needs --replay"))
    try:
        settings = {} if config is None else read_config_file(config)
    except ConfigError as error:
        raise typer.Exit(refuse(error)) from error
    if replay is not None:
        raise typer.Exit(replay_schedule(replay, keep=keep, assignor=assignor, mutant=mutant, settings=settings))
    raise typer.Exit(
        run_schedules(
            range(seed, seed + schedules),
            assignor=assignor,
            mutant=mutant,
            settings=settings,
            shorten=shorten,
            processes=processes,
        )
    )


@app.command()
def fuzz(
    inputs: Annotated[int, typer.Option("--inputs", "-n", min=1, help="Inputs for each target.")] = 20_000,
    seed: _SEED = 1,
    target: Annotated[list[str] | None, typer.Option(help="Only this target; may be repeated. Default: all.")] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(help="Folder with recorded bytes to start from; default: those of a checkout, if any."),
    ] = None,
) -> None:
    """Everything that reads other people's bytes, fed with damaged ones.

    Random, truncated, mutated, spliced and blown up bytes go into every decoder of the protocol, the serdes, the
    events, the files of the state directory and of the user. Whatever comes in, the answer is a value or a documented
    error, within 50 ms of processor time, and with no more memory than a small multiple of the input and a megabyte.

    Exit status: 0 nothing found; 1 something found; 2 wrong usage.

    Examples:

      streams-py fuzz -n 200000

      streams-py fuzz --target subscription_info --target event --seed 7
    """
    from streams_py.cli.development.fuzzing import run_fuzz

    raise typer.Exit(run_fuzz(inputs, seed=seed, targets=target, vectors=vectors))


@app.command()
def topics(
    create: Annotated[str | None, typer.Option(metavar="NAME", help="Create this topic.")] = None,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="With --create.")] = 4,
    bootstrap: BOOTSTRAP_OR_EMBEDDED = None,
    config: CONFIG = None,
) -> None:
    """List the topics of a cluster, or create one.

    Exit status: 0 done; 2 wrong usage, or the cluster does not answer or refuses.

    Examples:

      streams-py topics

      streams-py topics --create text-lines --partitions 4 --bootstrap localhost:9092
    """
    from streams_py.cli.records import create_topic, list_topics

    if create is not None:
        raise typer.Exit(create_topic(create, partitions, bootstrap, config))
    raise typer.Exit(list_topics(bootstrap, config))


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(help="An existing topic.")],
    lines: Annotated[list[str] | None, typer.Argument(help="Values; default: the lines of standard input.")] = None,
    value: Annotated[str, typer.Option(metavar="SERDE", help=f"What the values are: {SERDES_ALLOWED}.")] = "string",
    key: Annotated[
        str | None,
        typer.Option(metavar="SERDE", help="Lines are KEY:VALUE, with keys of this serde; window-string: KEY@START."),
    ] = None,
    separator: Annotated[str, typer.Option("--separator", "-s", help="Stands between key and value.")] = ":",
    bootstrap: BOOTSTRAP_OR_EMBEDDED = None,
    config: CONFIG = None,
) -> None:
    """Write records to a topic: one per argument, or per line of standard input.

    When an argument is wrong nothing is written; when a line of standard input is, what came before it.

    Exit status: 0 all are acknowledged; 2 wrong usage, or the cluster does not answer or refuses.

    Examples:

      streams-py produce text-lines "all streams lead to kafka"

      streams-py produce prices --key string --value float64 apples:1.20 pears:0.99

      streams-py produce text-lines < README.md
    """
    from streams_py.cli.records import lines_of, produce_lines

    given = lines_of(sys.stdin.buffer) if lines is None else lines
    if separator == "":
        raise typer.Exit(refuse("--separator needs at least one character"))
    raise typer.Exit(produce_lines(topic, given, bootstrap, config, key=key, value=value, separator=separator))


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(help="An existing topic.")],
    value: Annotated[
        str, typer.Option(metavar="SERDE", help=f"What the values are: {SERDES_ALLOWED}, or change- and one of these.")
    ] = "string",
    key: Annotated[
        str,
        typer.Option(
            metavar="SERDE",
            help="What the keys are: one of these, or window-, session- or stored-window- and one of these.",
        ),
    ] = "string",
    window_size: Annotated[
        int | None, typer.Option(min=1, metavar="MS", help="Size of the windows, to show where they end.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", "-d", help="Partition:offset and time in front, headers behind.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object for each record.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new records until Ctrl-C.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many records.")] = None,
    bootstrap: BOOTSTRAP_OR_EMBEDDED = None,
    config: CONFIG = None,
) -> None:
    """Print the records of a topic from the beginning: key, tab, value. It reads outside of any consumer group.

    Keys of windowed tables are window-string for example, and session-string for sessions. In changelogs, keys of
    window stores are stored-window-string, all others are as above, and values are plain. Values of a table that is
    grouped anew are change-int64 for example: new value <- old value. bytes shows everything.

    Exit status: 0 done; 1 a record is not what was said; 2 wrong usage, or the cluster does not answer or refuses.

    Examples:

      streams-py consume word-counts --value int64 --follow

      streams-py consume text-lines -n 10 --details --bootstrap localhost:9092

      streams-py consume per-minute --key window-string --window-size 60000 --value int64

      streams-py consume app-counts-changelog --key stored-window-string --value int64 --json
    """
    from streams_py.cli.records import Shown, consume_topic

    def shown() -> Shown:
        return Shown(
            form_named(key, setting="--key", is_key=True, window_ms=window_size),
            form_named(value, setting="--value", is_key=False),
            details=details,
            as_json=as_json,
        )

    raise typer.Exit(consume_topic(topic, bootstrap, config, shown=shown, follow=follow, limit=limit))


@new_typer.command("app")
def new_app(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the project and its folder, for example word-count.")],
) -> None:
    """Make a small project: a topology, its test, a compose file with a broker. The test passes at once.

    Exit status: 0 made; 2 the name is taken or cannot be one, and nothing was made.

    Example: streams-py new app word-count
    """
    from streams_py.cli.development.new_app import new_app as make

    raise typer.Exit(make(name))


@topology_app.command()
def describe(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME|FILE.PY[:NAME]", help="A StreamsBuilder, a Topology, or a function that returns one."
        ),
    ],
    optimize: Annotated[bool, typer.Option(help="With topology.optimization=all.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="A picture instead.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="A Mermaid flowchart instead, for Markdown.")] = False,
    dot: Annotated[bool, typer.Option("--dot", help="A Graphviz graph instead.")] = False,
) -> None:
    """Print a topology as Kafka Streams' Topology.describe() does: sub-topologies, processors, stores, topics.

    Examples:

      streams-py topology describe my_app.main:build_topology

      streams-py topology app.py --svg > topology.svg
    """
    from streams_py.cli.development.topologies import describe_topology

    forms = [form for form, wanted in (("svg", svg), ("mermaid", mermaid), ("dot", dot)) if wanted]
    if len(forms) > 1:
        raise typer.BadParameter("only one of --svg, --mermaid and --dot")
    raise typer.Exit(describe_topology(what, optimize=optimize, form=forms[0] if forms else "text"))


@app.command(name="check-upgrade")
def check_upgrade(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="module:name, path/to/file.py:name, or a file with the text of describe() (Java's too). With "
            "--bootstrap or --config: the new version, checked against the group's internal topics.",
        ),
    ],
    new: Annotated[str | None, typer.Argument(metavar="NEW", help="The same of the new version.")] = None,
    bootstrap: Annotated[str | None, typer.Option("--bootstrap", "-b", help="Brokers of the running group.")] = None,
    application_id: Annotated[
        str | None, typer.Option("--application-id", "-a", help="Its application.id, if --config does not say it.")
    ] = None,
    config: CONFIG = None,
    other_application: Annotated[
        list[str] | None,
        typer.Option(
            "--other-application",
            help="The application.id of a stopped application whose topics begin alike; may be repeated.",
        ),
    ] = None,
    optimize: Annotated[bool, typer.Option(help="Build both with topology.optimization=all.")] = False,
    rolling: Annotated[
        bool, typer.Option(help="Not safe, too, when old and new instances must not run at the same time.")
    ] = False,
) -> None:
    """Is it safe to roll a new version out over the state of the old one?

    Names stores and internal topics that would be renamed, left behind, read with other serdes or have another
    partition count, and the line that keeps them. Exit status: 0 safe, 1 not safe, 2 wrong usage.

    Examples:

      streams-py check-upgrade old/app.py:build_topology app.py:build_topology

      streams-py check-upgrade app.py:build_topology --config app.properties
    """
    from streams_py.cli.development.upgrades import check

    raise typer.Exit(
        check(
            old,
            new,
            bootstrap=bootstrap,
            application_id=application_id,
            config=config,
            optimize=optimize,
            rolling=rolling,
            others=other_application or (),
        )
    )


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"kafka-streams-py {metadata.version('kafka-streams-py')}")
        raise typer.Exit


@app.callback()
def _common(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def version() -> None:
    """Versions of everything that matters in a bug report.

    Example: streams-py version
    """
    from streams_py.cli.versions import versions

    for name, value in versions():
        typer.echo(f"{name:18} {value}")
