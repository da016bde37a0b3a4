"""``streams-py explain``: explains a running, described or recorded group."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streams_py.cli.groups.explaining import explain_tasks
from streams_py.cli.groups.explaining_live import explain_live
from streams_py.cli.options import BOOTSTRAP, CONFIG
from streams_py.cli.usage import RefusedError, refusing

_FILE = Annotated[
    Path | None,
    typer.Option("--from", help="A file that describes a group (.json) or records one (.jsonl, .jsonl.gz)."),
]
_GROUP = Annotated[
    str | None, typer.Option("--group", "-g", help="A running group, Java or Python: its application.id.")
]
_SETTINGS = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="With --group: a setting of the group; may be repeated."),
]
_CASE = Annotated[
    str | None,
    typer.Option(
        help="Selects a recording: the number of a rebalance (default: the last), or the id of an assign step "
        "(default: the first)."
    ),
]
_ASSIGNOR = Annotated[
    str | None,
    typer.Option(help="Decide with this assignor: high_availability, sticky, static, legacy_sticky, fallback."),
]


@refusing
def explain(
    task: Annotated[str | None, typer.Argument(help="Task id, such as 0_3; default: every task.")] = None,
    file: _FILE = None,
    group: _GROUP = None,
    bootstrap: BOOTSTRAP = None,
    config: CONFIG = None,
    settings: _SETTINGS = None,
    case: _CASE = None,
    assignor: _ASSIGNOR = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
) -> int:
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
            raise RefusedError("--group explains a running group; remove --from and --case")
        return explain_live(task, group, bootstrap, config, settings=settings, assignor=assignor, as_json=as_json)
    if settings:
        raise RefusedError("--set applies to a running group; give --group as well")
    if file is None:
        raise RefusedError(
            "no group given; name a running one with --group, or a file that describes or records one with --from"
        )
    return explain_tasks(task, file, case=case, assignor=assignor, as_json=as_json)
