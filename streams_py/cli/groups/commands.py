"""The commands that look at groups from outside, and the one that resets them; see the modules beside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streams_py.cli.options import BOOTSTRAP, CONFIG
from streams_py.cli.usage import refuse

__all__ = ["add_to"]


def explain(
    task: Annotated[str | None, typer.Argument(help="Task id, such as 0_3; default: every task.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--from", help="A description of the group (.json), or a recording (.jsonl, .jsonl.gz)."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="A running group, Java or Python: its application.id.")
    ] = None,
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With --group: a setting of the group; may be repeated."),
    ] = None,
    case: Annotated[
        str | None,
        typer.Option(
            help="Which of the recorded: the number of a rebalance (default: the last), or the id of an assign step "
            "(default: the first)."
        ),
    ] = None,
    assignor: Annotated[
        str | None,
        typer.Option(help="Let this assignor decide: high_availability, sticky, static, legacy_sticky, fallback."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The facts as JSON instead of sentences.")] = False,
) -> None:
    """Why is a task where it is?

    Decides for a group as its leader would, and says for each task which client has it and why: lags, loads, limits,
    racks. In a running application the same is [bold]streams.explain("0_3")[/bold].

    Examples:

      streams-py explain 0_1 --from group.json

      streams-py explain --from events.jsonl --case 3 --json

    A file that ends in .jsonl holds records of an events topic, one on each line, or recorded assign steps. Any other
    one describes a group in JSON, of which everything but tasks and clients may be left out:

      {"assignor": "high_availability",
       "configs": {"num.standby.replicas": 1, "acceptable.recovery.lag": 100},
       "tasks": {"0_0": 5000, "0_1": 5000, "1_0": null},
       "clients": {"A": {"threads": 2, "offsets": {"0_0": "running"}},
                   "B": {"offsets": {"0_1": 4990}, "rack": "r1", "tags": {"zone": "z1"}}}}

    A task's number is the end of its changelogs, null for a task without state; a client's offsets are how far it is.

    With --group, what the members of a running group said of themselves goes through the assignor again, and each task
    also says whether a rebalance now would move it. Nobody joins the group, and nothing is changed. Settings that do
    not show from outside are Kafka's defaults unless --set or the application's own file (--config) gives them:

      streams-py explain 1_3 --group word-count -b localhost:9092 --set acceptable.recovery.lag=100

    Exit status: 0 explained; 2 wrong usage, no answer from the cluster, or there is nothing to explain.
    """
    if group is not None:
        if file is not None or case is not None:
            raise typer.Exit(refuse("--group asks a running group; leave --from and --case out"))
        from streams_py.cli.groups.explaining_live import explain_live

        raise typer.Exit(
            explain_live(task, group, bootstrap, config, settings=settings, assignor=assignor, as_json=as_json)
        )
    if settings:
        raise typer.Exit(refuse("--set is for a running group; give --group too"))
    if file is None:
        raise typer.Exit(
            refuse("which group? --group names a running one, --from a file that describes or records one")
        )
    from streams_py.cli.groups.explaining import explain_tasks

    raise typer.Exit(explain_tasks(task, file, case=case, assignor=assignor, as_json=as_json))


def inspect_(
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="The application.id; without it, all groups.")
    ] = None,
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    watch: Annotated[
        float | None, typer.Option("--watch", "-w", min=0.5, help="Look again every so many seconds, until Ctrl-C.")
    ] = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="A line for each task, however many there are.")] = False,
) -> None:
    """What a Kafka Streams group does right now, [bold]Java or Python[/bold]: members, tasks, lags, the next rebalance.

    Groups of the classic protocol and of the streams protocol (KIP-1071), whose coordinator assigns the tasks itself.
    Reads what the group's coordinator keeps of each member, and offsets. It never joins the group and changes nothing.
    Rights needed: DESCRIBE on the group and its topics; who also has READ on __consumer_offsets sees who leads.

    Exit status: 0 shown; 2 wrong usage, no answer from the cluster, no such group, or no Kafka Streams group.

    Examples:

      streams-py inspect -b localhost:9092

      streams-py inspect -b localhost:9092 -g word-count

      streams-py inspect -b localhost:9092 -g word-count --watch 2
    """
    if group is None and (watch is not None or tasks):
        raise typer.Exit(refuse("--watch and --tasks show one group; give --group too"))
    if watch is not None and as_json:
        raise typer.Exit(refuse("--watch is for a terminal and --json for programs; give one of them"))
    from streams_py.cli.groups.inspecting import inspect_command

    raise typer.Exit(inspect_command(group, bootstrap, config, as_json=as_json, watch_s=watch, all_tasks=tasks))


def dashboard(
    group: Annotated[str, typer.Option("--group", "-g", help="The application.id.")],
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen at. There are no passwords: anything but loopback is for a trusted network."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0: any free one.")] = 8088,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--accepted-name",
            metavar="NAME",
            help="A further host name by which browsers may request the page; may be repeated.",
        ),
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Look at the group every so many seconds.")] = 0.5,
    events_topic: Annotated[
        str | None, typer.Option("--events-topic", help="Default: GROUP-assignment-events, where there is one.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the group, for reasons; may be repeated."),
    ] = None,
    assignor: Annotated[str | None, typer.Option(help="The group's assignor, for reasons; as for explain.")] = None,
) -> None:
    """A page that shows a group, [bold]Java or Python[/bold], while it happens: who runs which task, lags, moves.

    Click on a task, or press Enter on it, to read why it is where it is. Rebalances and restorations are shown of
    groups that write events (assignment.events.level). One reader serves all open pages; it joins no group and changes
    nothing. Needs the extra [bold]dashboard[/bold].

    Exit status: 0 ended by Ctrl-C; 2 wrong usage, no answer from the cluster, no such group, or the port is in use.

    Example: streams-py dashboard -g word-count -b localhost:9092
    """
    from streams_py.cli.groups.watching import serve_dashboard

    raise typer.Exit(
        serve_dashboard(
            group,
            bootstrap,
            config,
            host=host,
            port=port,
            names=names or (),
            every_s=every,
            events_topic=events_topic,
            settings=settings,
            assignor=assignor,
        )
    )


def reset(
    application_id: Annotated[str, typer.Option("--application-id", "-a", help="The application to reset.")],
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    input_topic: Annotated[
        list[str] | None,
        typer.Option("--input-topic", help="Read this topic again; may be repeated. Default: all it has offsets for."),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an offset, +N or -N records, or a time: 2026-01-31T12:00.")
    ] = "earliest",
    state_dir: Annotated[
        str | None, typer.Option("--state-dir", help="Delete the local state below this directory, too.")
    ] = None,
    internal_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--internal-topic", help="Delete this internal topic although its name fits another application, too."
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", help="The application's program, module:name: all its internal topics are deleted."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove members that the group still has.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let an application, Java or Python, [bold]begin again[/bold]: offsets, internal topics, local state.

    The plan is shown first, with the reason for each topic. A running application is refused; --dry-run shows the plan
    all the same. Topics of another application whose name begins alike are left alone. The command asks about a topic
    whose name fits both; with --yes it leaves such a topic alone, too. Output topics stay as they are.

    Exit status: 0 done, or shown with --dry-run; 1 not confirmed; 2 refused, or no answer from the cluster.

    Examples:

      streams-py reset -a word-count -b localhost:9092 --dry-run

      streams-py reset -a word-count -b localhost:9092 --state-dir /var/lib/streams

      streams-py reset -a word-count --input-topic text-lines --to 2026-01-31T12:00
    """
    from streams_py.cli.groups.resetting import Target, reset_application

    try:
        target = Target.of(to)
    except ValueError:
        raise typer.Exit(
            refuse(f"--to {to!r} is neither earliest, latest, an offset, +N, -N, nor a time like 2026-01-31T12:00")
        ) from None
    raise typer.Exit(
        reset_application(
            application_id,
            bootstrap,
            config,
            inputs=input_topic or (),
            target=target,
            state_dir=state_dir,
            dry_run=dry_run,
            force=force,
            confirmed=lambda: yes or typer.confirm("Do it?", default=False),
            internal=internal_topic or (),
            topology=topology,
            is_own=lambda topic: (
                not yes and typer.confirm(f"Does {topic} belong to {application_id}: delete it?", default=False)
            ),
        )
    )


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(explain)
    app.command("inspect")(inspect_)
    app.command()(dashboard)
    app.command()(reset)
