"""``streams-py check-upgrade``: checks a new version against the state of the old one."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from streams_py import Topology
from streams_py.cli.development.topologies import building
from streams_py.cli.options import CONFIG
from streams_py.cli.usage import FAILED, RefusedError, refusing
from streams_py.config.files import read_config_file
from streams_py.errors import StreamsError
from streams_py.history.loading import TopologyNotFoundError, load_topology
from streams_py.topology.topic_owners import Owner, owners_of
from streams_py.topology.upgrade import UpgradeReport, check_running
from streams_py.topology.upgrade import check_upgrade as compare


@refusing
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
) -> int:
    """Check whether a new version can be deployed over the state of the old version.

    Lists the stores and internal topics that the new version would rename, abandon, read with other serdes or need
    with another partition count, and the line of code that keeps each. Exit status: 0 safe, 1 not safe, 2 wrong usage.

    Examples:

      streams-py check-upgrade old/app.py:build_topology app.py:build_topology

      streams-py check-upgrade app.py:build_topology --config app.properties
    """
    if bootstrap is not None or config is not None:
        group = application_id or ({} if config is None else read_config_file(config)).get("application.id")
        if new is not None or not group:
            raise RefusedError("with --bootstrap or --config, give only the new version, and --application-id")
        version = load_topology(old, building(optimize=optimize))
        report = _against_cluster(version, bootstrap, str(group), config, other_application or ())
    elif new is None:
        raise RefusedError(
            "give two versions, OLD and NEW; or the new version and its group: --bootstrap and --application-id, "
            "or --config of the application"
        )
    else:
        report = compare(_version(old, optimize=optimize), _version(new, optimize=optimize))
    print(report)
    return 0 if (report.safe_while_rolling if rolling else report.safe) else FAILED


def _version(what: str, *, optimize: bool) -> Topology | str:
    """Return a topology, or the text of a description if ``what`` is such a file."""
    path = Path(what)
    if what.endswith(".py") or (":" in what and not path.is_file()):
        return load_topology(what, building(optimize=optimize))
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyNotFoundError(
            f"{what} is neither module:name nor a file with the description of a topology ({type(error).__name__})"
        ) from None


def _against_cluster(
    new: Topology, bootstrap: str | None, application_id: str, config: Path | None, others: Collection[str]
) -> UpgradeReport:
    from streams_py.cli.connecting import connected
    from streams_py.cli.records.topics import existing_topics

    with connected(bootstrap, config, "streams-py") as cluster:
        partitions = {name: len(found) for name, found in existing_topics(cluster.admin).items()}
        is_embedded = cluster.clients.embedded is not None  # it cannot list groups
        groups = {*others} if is_embedded else {*cluster.groups.list_groups(), *others}
        owners = owners_of(application_id, partitions, groups=groups)
        has_topics = any(found.owner is not Owner.OTHER for found in owners.values())
        if not has_topics and not is_embedded and application_id not in groups:
            raise StreamsError(
                f"{application_id} has neither internal topics nor a group at {cluster.bootstrap} that this user may "
                "see, so there is nothing to compare with; check the application.id"
            )
    return check_running(partitions, new, application_id, groups)
