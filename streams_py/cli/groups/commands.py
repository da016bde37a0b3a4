"""The commands that inspect groups from outside, and the command that resets an application."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streams_py.cli.options import BOOTSTRAP, CONFIG
from streams_py.cli.usage import refuse


def explain(
    task: Annotated[str | None, typer.Argument(help="Task id, such as 0_3; default: every task.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--from", help="A file that describes a group (.json) or records one (.jsonl, .jsonl.gz)."),
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
            help="Selects a recording: the number of a rebalance (default: the last), or the id of an assign step "
            "(default: the first)."
        ),
    ] = None,
    assignor: Annotated[
        str | None,
        typer.Option(help="Decide with this assignor: high_availability, sticky, static, legacy_sticky, fallback."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
) -> None:
    """Explain why a task is where it is.

    Decides for a group as its leader would. For each task it prints the client that has it, and the reasons: lags,
    loads, limits, racks. In a running application, [bold]streams.explain("0_3")[/bold] gives the same explanation.

    Examples:

      streams-py explain 0_1 --from group.json

      streams-py explain --from events.jsonl --case 3 --json

    A file that ends in .jsonl contains one record of an events topic, or one recorded assign step, per line. Any other
    file describes a group in JSON. Only tasks and clients are required:

      {"assignor": "high_availability",
       "configs": {"num.standby.replicas": 1, "acceptable.recovery.lag": 100},
       "tasks": {"0_0": 5000, "0_1": 5000, "1_0": null},
       "clients": {"A": {"threads": 2, "offsets": {"0_0": "running"}},
                   "B": {"offsets": {"0_1": 4990}, "rack": "r1", "tags": {"zone": "z1"}}}}

    The number of a task is the sum of its changelogs' end offsets, or null for a task without state. The offsets of a
    client say how far its copy of each task has been restored.

    With --group, the command runs the assignor on the subscriptions of a running group's members, and says for each
    task whether a rebalance now would move it. It joins no group and changes nothing. Settings that are not visible
    from outside have Kafka's defaults, unless --set or the application's own file (--config) gives them:

      streams-py explain 1_3 --group word-count -b localhost:9092 --set acceptable.recovery.lag=100

    Exit status: 0 explained; 2 wrong usage, no answer from the cluster, or there is nothing to explain.
    """
    if group is not None:
        if file is not None or case is not None:
            raise typer.Exit(refuse("--group explains a running group; remove --from and --case"))
        from streams_py.cli.groups.explaining_live import explain_live

        raise typer.Exit(
            explain_live(task, group, bootstrap, config, settings=settings, assignor=assignor, as_json=as_json)
        )
    if settings:
        raise typer.Exit(refuse("--set applies to a running group; give --group as well"))
    if file is None:
        raise typer.Exit(
            refuse(
                "no group given; name a running one with --group, or a file that describes or records one with --from"
            )
        )
    from streams_py.cli.groups.explaining import explain_tasks

    raise typer.Exit(explain_tasks(task, file, case=case, assignor=assignor, as_json=as_json))


def inspect_(
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="The application.id. Without it, the command lists all groups.")
    ] = None,
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    watch: Annotated[
        float | None, typer.Option("--watch", "-w", min=0.5, help="Refresh at this interval in seconds, until Ctrl-C.")
    ] = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="Print a line for each task, even if there are many.")] = False,
) -> None:
    """Show the members, tasks and lags of a group, [bold]Java or Python[/bold].

    Also shows the next rebalance, if one is expected. Supports groups of the classic protocol and of the streams
    protocol (KIP-1071), in which the coordinator assigns the tasks. The command reads offsets, and the data that the
    group's coordinator keeps about each member. It never joins the group and changes nothing.

    Required rights: DESCRIBE on the group and its topics. With READ on __consumer_offsets it also shows the leader.

    Exit status: 0 shown; 2 wrong usage, no answer from the cluster, an unknown group, or not a Kafka Streams group.

    Examples:

      streams-py inspect -b localhost:9092

      streams-py inspect -b localhost:9092 -g word-count

      streams-py inspect -b localhost:9092 -g word-count --watch 2
    """
    if group is None and (watch is not None or tasks):
        raise typer.Exit(refuse("--watch and --tasks show one group; give --group as well"))
    if watch is not None and as_json:
        raise typer.Exit(refuse("--watch is for a terminal and --json for programs; give only one of them"))
    from streams_py.cli.groups.inspecting import inspect_command

    raise typer.Exit(inspect_command(group, bootstrap, config, as_json=as_json, watch_s=watch, all_tasks=tasks))


def dashboard(
    group: Annotated[str, typer.Option("--group", "-g", help="The application.id.")],
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. The page has no passwords: listen outside loopback only in a trusted network."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port to listen on. 0: any free port.")
    ] = 8088,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--accepted-name",
            metavar="NAME",
            help="Additional host name under which browsers may request the page; may be repeated.",
        ),
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Interval between two reads of the group, in seconds.")] = 0.5,
    events_topic: Annotated[
        str | None,
        typer.Option(
            "--events-topic", help="Topic of the group's events. Default: GROUP-assignment-events, if it exists."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of the group, for the reasons shown; may be repeated."
        ),
    ] = None,
    assignor: Annotated[
        str | None, typer.Option(help="The group's assignor, for the reasons shown; same values as for explain.")
    ] = None,
) -> None:
    """Serve a page that shows a group live, [bold]Java or Python[/bold].

    The page shows the tasks of each member, their lags and their moves.
    Click on a task, or press Enter on it, to read why it is where it is. The page shows rebalances and restores of
    groups that write events (assignment.events.level). One reader serves all open pages. It joins no group and changes
    nothing. Requires the extra [bold]dashboard[/bold].

    Exit status: 0 stopped by Ctrl-C; 2 wrong usage, no answer from the cluster, an unknown group, or a port in use.

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
        typer.Option(
            "--input-topic", help="Read this topic again; may be repeated. Default: all topics with committed offsets."
        ),
    ] = None,
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an offset, +N or -N records, or a time: 2026-01-31T12:00.")
    ] = "earliest",
    state_dir: Annotated[
        str | None, typer.Option("--state-dir", help="Also delete the local state in this directory.")
    ] = None,
    internal_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--internal-topic", help="Delete this internal topic even if its name also fits another application."
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology", help="The application's program, module:name. Deletes all internal topics of that topology."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove members that are still in the group.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Reset an application, Java or Python, [bold]to its beginning[/bold].

    A reset changes committed offsets, and deletes internal topics and local state.
    The command first shows its plan, with the reason for each topic. It refuses to reset a running application, but
    --dry-run shows the plan even then. It keeps the topics of another application whose name starts alike. If a
    topic's name fits both applications, the command asks; with --yes it keeps such a topic. It keeps output topics.

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
            refuse(
                f"--to {to!r} is not valid; use earliest, latest, an offset, +N, -N, or a time such as 2026-01-31T12:00"
            )
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
            confirmed=lambda: yes or typer.confirm("Carry out this plan?", default=False),
            internal=internal_topic or (),
            topology=topology,
            is_own=lambda topic: (
                not yes and typer.confirm(f"Does {topic} belong to {application_id}? Delete it?", default=False)
            ),
        )
    )


def add_to(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    app.command()(explain)
    app.command("inspect")(inspect_)
    app.command()(dashboard)
    app.command()(reset)
