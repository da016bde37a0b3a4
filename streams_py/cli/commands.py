"""The commands and their options. Other modules of this package do the work."""

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


class _DescribeByDefault(typer.core.TyperGroup):
    """Read ``streams-py topology app.py`` as ``streams-py topology describe app.py``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["describe", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="streams-py",
    cls=ByPanel,
    help="Kafka Streams for Python: run applications, inspect groups, check a change before you deploy it.",
    epilog="Help for a command: streams-py COMMAND --help",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
topology_app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", cls=_DescribeByDefault)
app.add_typer(topology_app, name="topology", help="Print or draw a topology: streams-py topology app.py.")
new_typer = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
app.add_typer(new_typer, name="new", help="Create a starter project.")
app.command("run")(run_command)
app.add_typer(connect_app, name="connect", help="Run and inspect a group of workers that run connectors.")
# Neither imports Spark before it is needed. Without the extra, the commands say so when they run.
app.add_typer(telemetry_app, name="telemetry")
app.add_typer(backtest_app(), name="backtest")
app.command()(torture)
add_history_commands(app)
add_group_commands(app)

_PROCESSES = Annotated[
    int | None, typer.Option("--processes", min=1, help="Number of worker processes. Default: one per core.")
]
_SEED = Annotated[int, typer.Option("--seed", help="First seed. The same seed always gives the same run.")]


@app.command()
def simulate(
    schedules: Annotated[int, typer.Option("--schedules", "-n", min=1, help="Number of schedules to run.")] = 200,
    seed: _SEED = 1,
    assignor: Annotated[
        str | None,
        typer.Option(
            help="Run all groups with this assignor: package.module:Class for your own, or high_availability, "
            "legacy_sticky, sticky, fallback, static, custom (an assignor that may fail). Default: a mixture."
        ),
    ] = None,
    mutant: Annotated[
        str | None, typer.Option(help="Plant a bug that the run must find. --mutant list shows all of them.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="The application's settings (.toml or .properties), passed to your assignor's configure()."),
    ] = None,
    known_bugs: Annotated[
        bool, typer.Option("--known-bugs", help="Replay known bugs of Kafka Streams, listed by ticket.")
    ] = False,
    replay: Annotated[
        int | None, typer.Option(help="Run the schedule of one seed and print its whole history.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="With --replay: run only these actions, numbered as in a finding, e.g. 3,8,11.")
    ] = None,
    shorten: Annotated[
        bool,
        typer.Option("--shorten/--no-shorten", help="Search for the shortest history that repeats the first finding."),
    ] = True,
    processes: _PROCESSES = None,
) -> None:
    """Test whole groups of real leaders and members in virtual time, with faults of every kind.

    Members join, leave, die, freeze and send wrong data. Brokers fail at every step. Releases are mixed and upgraded
    one by one. While faults occur, nothing may happen that is [bold]never[/bold] allowed (safety). Then the faults
    stop, and the group must become stable with every task running ([bold]liveness[/bold]).

    Exit status: 0 nothing found; 1 safety violated; 4 only liveness violated; 2 wrong usage.

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
    inputs: Annotated[int, typer.Option("--inputs", "-n", min=1, help="Number of inputs per target.")] = 20_000,
    seed: _SEED = 1,
    target: Annotated[list[str] | None, typer.Option(help="Only this target; may be repeated. Default: all.")] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="Folder with recorded bytes to start from. Default: the vectors of a source checkout, if there is one."
        ),
    ] = None,
) -> None:
    """Feed damaged bytes to every decoder that reads bytes from outside.

    Random, truncated, mutated, spliced and enlarged bytes go into every decoder of the protocol, the serdes, the
    events, the state directory's files and the user's files. For any input, a decoder must return a value or raise a
    documented error. It may use at most 50 ms of processor time, and memory of at most a small multiple of the input
    plus one megabyte.

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
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="With --create: number of partitions.")
    ] = 4,
    bootstrap: BOOTSTRAP_OR_EMBEDDED = None,
    config: CONFIG = None,
) -> None:
    """List the topics of a cluster, or create one.

    Exit status: 0 done; 2 wrong usage, or the cluster does not answer or rejects the request.

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
    value: Annotated[str, typer.Option(metavar="SERDE", help=f"Serde of the values: {SERDES_ALLOWED}.")] = "string",
    key: Annotated[
        str | None,
        typer.Option(
            metavar="SERDE", help="Read lines as KEY:VALUE, with keys of this serde. window-string: KEY@START."
        ),
    ] = None,
    separator: Annotated[str, typer.Option("--separator", "-s", help="Text between key and value.")] = ":",
    bootstrap: BOOTSTRAP_OR_EMBEDDED = None,
    config: CONFIG = None,
) -> None:
    """Write records to a topic: one per argument, or per line of standard input.

    If an argument is wrong, no record is written. If a line of standard input is wrong, the lines before it are
    written.

    Exit status: 0 all records are acknowledged; 2 wrong usage, or the cluster does not answer or rejects the request.

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
        str,
        typer.Option(
            metavar="SERDE", help=f"Serde of the values: {SERDES_ALLOWED}; or change- followed by one of these."
        ),
    ] = "string",
    key: Annotated[
        str,
        typer.Option(
            metavar="SERDE",
            help="Serde of the keys: one as for --value, or window-, session- or stored-window- followed by one.",
        ),
    ] = "string",
    window_size: Annotated[
        int | None, typer.Option(min=1, metavar="MS", help="Window size. With it, the end of each window is shown.")
    ] = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details", "-d", help="Also print partition:offset and time before the record, and headers after it."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as a JSON object.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records until Ctrl-C.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Stop after this number of records.")
    ] = None,
    bootstrap: BOOTSTRAP_OR_EMBEDDED = None,
    config: CONFIG = None,
) -> None:
    """Print the records of a topic from the beginning: key, tab, value. Joins no consumer group.

    For keys of windowed tables use for example window-string, and for keys of sessions session-string. In changelog
    topics, keys of window stores are stored-window-string, keys of all other stores are as above, and values are
    plain. Values in the repartition topic of a regrouped table are for example change-int64, printed as new value <-
    old value. bytes shows any record.

    Exit status: 0 done; 1 a record does not match --key or --value; 2 wrong usage, or the cluster does not answer or
    rejects the request.

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
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the project and its folder, for example word-count.")
    ],
) -> None:
    """Create a small project: a topology, its test, a compose file with a broker.

    The test passes right away.

    Exit status: 0 created; 2 the name exists already or is not valid, and nothing was created.

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
    optimize: Annotated[bool, typer.Option(help="Build with topology.optimization=all.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Print an SVG picture instead.")] = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a Mermaid flowchart instead, for Markdown.")
    ] = False,
    dot: Annotated[bool, typer.Option("--dot", help="Print a Graphviz graph instead.")] = False,
) -> None:
    """Print a topology in the format of Kafka Streams' Topology.describe().

    The output lists sub-topologies, processors, stores and topics.

    Examples:

      streams-py topology describe my_app.main:build_topology

      streams-py topology app.py --svg > topology.svg
    """
    from streams_py.cli.development.topologies import describe_topology

    forms = [form for form, wanted in (("svg", svg), ("mermaid", mermaid), ("dot", dot)) if wanted]
    if len(forms) > 1:
        raise typer.BadParameter("give only one of --svg, --mermaid and --dot")
    raise typer.Exit(describe_topology(what, optimize=optimize, form=forms[0] if forms else "text"))


@app.command(name="check-upgrade")
def check_upgrade(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="module:name, path/to/file.py:name, or a file with the output of describe() (also Java's). With "
            "--bootstrap or --config: the new version, which is checked against the group's internal topics.",
        ),
    ],
    new: Annotated[str | None, typer.Argument(metavar="NEW", help="The new version, in the same form.")] = None,
    bootstrap: Annotated[str | None, typer.Option("--bootstrap", "-b", help="Brokers of the running group.")] = None,
    application_id: Annotated[
        str | None,
        typer.Option("--application-id", "-a", help="The group's application.id, if --config does not contain it."),
    ] = None,
    config: CONFIG = None,
    other_application: Annotated[
        list[str] | None,
        typer.Option(
            "--other-application",
            help="The application.id of a stopped application whose topic names start alike; may be repeated.",
        ),
    ] = None,
    optimize: Annotated[bool, typer.Option(help="Build both with topology.optimization=all.")] = False,
    rolling: Annotated[
        bool, typer.Option(help="Also report as not safe if old and new instances must not run at the same time.")
    ] = False,
) -> None:
    """Check whether a new version can be deployed over the state of the old version.

    Lists the stores and internal topics that the new version would rename, abandon, read with other serdes or need
    with another partition count, and the line of code that keeps each. Exit status: 0 safe, 1 not safe, 2 wrong usage.

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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that come before a command's name."""


@app.command()
def version() -> None:
    """Print the versions that a bug report needs.

    Example: streams-py version
    """
    from streams_py.cli.versions import versions

    for name, value in versions():
        typer.echo(f"{name:18} {value}")
