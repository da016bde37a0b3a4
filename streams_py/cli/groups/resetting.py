"""``streams-py reset``: shows a plan and resets an application, like Kafka's reset tool."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from streams_py.cli.connecting import Connection, connected
from streams_py.cli.groups.reset_plan import Plan, Request, Target, make_plan
from streams_py.cli.options import BOOTSTRAP, CONFIG
from streams_py.cli.usage import FAILED, RefusedError, refuse, refusing
from streams_py.config.files import read_config_file
from streams_py.errors import StreamsError
from streams_py.history.loading import load_topology
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.system.printable import printable
from streams_py.topology.topic_owners import Owner

_MEMBERS_GONE_S: Final = 30.0
_SHOWN_MAX: Final = 30

_INPUT_TOPIC = Annotated[
    list[str] | None,
    typer.Option(
        "--input-topic", help="Read this topic again; may be repeated. Default: all topics with committed offsets."
    ),
]
_TO = Annotated[
    str, typer.Option("--to", help="earliest, latest, an offset, +N or -N records, or a time: 2026-01-31T12:00.")
]
_STATE_DIR = Annotated[str | None, typer.Option("--state-dir", help="Also delete the local state in this directory.")]
_INTERNAL_TOPIC = Annotated[
    list[str] | None,
    typer.Option("--internal-topic", help="Delete this internal topic even if its name also fits another application."),
]
_TOPOLOGY = Annotated[
    str | None,
    typer.Option(
        "--topology", help="The application's program, module:name. Deletes all internal topics of that topology."
    ),
]


@refusing
def reset(
    application_id: Annotated[str, typer.Option("--application-id", "-a", help="The application to reset.")],
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    input_topic: _INPUT_TOPIC = None,
    to: _TO = "earliest",
    state_dir: _STATE_DIR = None,
    internal_topic: _INTERNAL_TOPIC = None,
    topology: _TOPOLOGY = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove members that are still in the group.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> int:
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
    try:
        target = Target.of(to)
    except ValueError:
        raise RefusedError(
            f"--to {to!r} is not valid; use earliest, latest, an offset, +N, -N, or a time such as 2026-01-31T12:00"
        ) from None
    return reset_application(
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


def reset_application(
    application_id: str,
    bootstrap: str | None,
    config: Path | None,
    *,
    inputs: Collection[str],
    target: Target,
    state_dir: str | None,
    dry_run: bool,
    force: bool,
    confirmed: Callable[[], bool],
    internal: Collection[str] = (),
    topology: str | None = None,
    is_own: Callable[[str], bool] = lambda topic: False,
) -> int:
    """Print the plan, ask for confirmation, and carry the plan out. Returns the exit status.

    Changes nothing before it has checked that the whole plan is possible.

    Args:
        internal: Internal topics that the user names. They are deleted even if their names fit other applications.
        topology: The application's program (``module:name``), which gives the names of its internal topics.
        is_own: Asks the user about a topic whose name also fits another application.
    """
    try:
        state = None if state_dir is None else StateDirectory(state_dir, application_id)
        settings = {} if config is None else read_config_file(config)
        program = None if topology is None else load_topology(topology, settings)
        with connected(bootstrap, config, "streams-py-reset") as cluster:
            plan = make_plan(cluster, Request(application_id, target, inputs, internal, program, force))
            _print(plan, application_id, state_dir, has_state=state is not None and bool(state.instances()))
            if dry_run:
                if plan.refused:
                    print(printable(f"without --dry-run, the reset would be refused now: {plan.refused}"))
                return 0
            if plan.refused:
                raise RefusedError(plan.refused)
            uncertain = plan.topics(Owner.UNCERTAIN)
            agreed = [topic for topic in uncertain if is_own(topic)]
            if not confirmed():
                print("nothing was changed", file=sys.stderr)
                return FAILED
            _carry_out(cluster, plan, [*plan.topics(Owner.APPLICATION), *agreed], application_id, state)
    except StreamsError as error:
        return refuse(error)
    print(f"{application_id} has been reset")
    for topic in sorted({*uncertain} - {*agreed}):
        print(
            f"topic {topic} was kept: if it belongs to {application_id}, the application continues with the old "
            f"state in it; reset again with --internal-topic {topic}",
            file=sys.stderr,
        )
    if state_dir is None:
        print("local state was kept: delete it on each host with --state-dir DIR, or call KafkaStreams.clean_up()")
    return 0


def _print(plan: Plan, application_id: str, state_dir: str | None, *, has_state: bool) -> None:
    for member in plan.removed:
        print(printable(f"remove member {member.client_id} at {member.client_host}"))
    if not plan.positions:
        print(
            "no committed offsets are visible: none exist, or this user lacks DESCRIBE on topics; name topics with "
            "--input-topic"
        )
    if not plan.topics(Owner.APPLICATION):
        print("no internal topics are visible: none exist, or this user lacks DESCRIBE on them")
    moved = [(at, old, new) for at, (old, new) in plan.positions.items() if old != new]
    for at, old, new in moved[:_SHOWN_MAX]:
        print(f"read {at} from {new}" + ("" if old is None else f" (now at {old})"))
    if len(moved) > _SHOWN_MAX:
        print(f"and {len(moved) - _SHOWN_MAX} more partitions")
    for topic in plan.topics(Owner.APPLICATION):
        print(printable(f"delete topic {topic}: {plan.owners[topic].why}"))
    for topic in plan.topics(Owner.OTHER):
        print(printable(f"keep topic {topic}: {plan.owners[topic].why}"))
    for topic in plan.topics(Owner.UNCERTAIN):
        print(
            printable(
                f"keep topic {topic} unless you name it: {plan.owners[topic].why}; --internal-topic {topic} or "
                "--topology deletes it"
            )
        )
    if state_dir is not None:
        found = "" if has_state else ": no state found"
        print(printable(f"delete the local state of {application_id} in {state_dir}{found}"))


def _carry_out(
    cluster: Connection, plan: Plan, deleted: Sequence[str], application_id: str, state: StateDirectory | None
) -> None:
    """Change members, offsets, topics and disk, in this order.

    A repeated run after a failure does the rest.
    """
    if plan.removed:
        cluster.groups.remove_members(application_id, plan.removed)
        _await_empty(cluster, application_id)
    if plan.positions:
        cluster.groups.set_offsets(application_id, {at: new for at, (_, new) in plan.positions.items()})
    if deleted:
        cluster.groups.delete_topics(deleted)
    if state is not None:
        for path in state.clean_up():
            print(f"the state in {path} was kept: a running process uses it")


def _await_empty(cluster: Connection, application_id: str) -> None:
    until = time.monotonic() + _MEMBERS_GONE_S
    while members := cluster.groups.describe_group(application_id).members:
        if time.monotonic() > until:
            raise StreamsError(
                f"members of {application_id} rejoin: {members[0].client_id} at {members[0].client_host} is running; "
                "stop it"
            )
        time.sleep(0.3)
