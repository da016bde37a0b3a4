"""``streams-py check-upgrade``: checks a new version against the state of the old one."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from streams_py import Topology
from streams_py.cli.development.topologies import building
from streams_py.cli.usage import refuse
from streams_py.config.files import read_config_file
from streams_py.errors import StreamsError
from streams_py.history.loading import TopologyNotFoundError, load_topology
from streams_py.topology.topic_owners import Owner, owners_of
from streams_py.topology.upgrade import UpgradeReport, check_running, check_upgrade

_SAFE, _NOT_SAFE = 0, 1


def check(
    old: str,
    new: str | None,
    *,
    bootstrap: str | None,
    application_id: str | None,
    config: Path | None,
    optimize: bool,
    rolling: bool,
    others: Collection[str] = (),
) -> int:
    """Print the findings. Returns the exit status.

    Args:
        old: The old version; or the new version if ``bootstrap`` or ``config`` name a cluster.
        new: The new version. None with a cluster.
        bootstrap: Brokers of the running group.
        application_id: The group. None if ``config`` names it.
        config: Configuration file of the application.
        optimize: Whether to build with ``topology.optimization=all``.
        rolling: Whether old and new instances will run at the same time.
        others: Applications whose topics do not belong to this one.
    """
    try:
        if bootstrap is not None or config is not None:
            group = application_id or ({} if config is None else read_config_file(config)).get("application.id")
            if new is not None or not group:
                return refuse("with --bootstrap or --config, give only the new version, and --application-id")
            version = load_topology(old, building(optimize=optimize))
            more = {"others": others} if others else {}
            report = _against_cluster(version, bootstrap, str(group), config, **more)
        elif new is None:
            return refuse(
                "give two versions, OLD and NEW; or the new version and its group: --bootstrap and --application-id, "
                "or --config of the application"
            )
        else:
            report = check_upgrade(_version(old, optimize=optimize), _version(new, optimize=optimize))
    except StreamsError as error:
        return refuse(error)
    print(report)
    return _SAFE if (report.safe_while_rolling if rolling else report.safe) else _NOT_SAFE


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
    new: Topology, bootstrap: str | None, application_id: str, config: Path | None, others: Collection[str] = ()
) -> UpgradeReport:
    from streams_py.cli.connecting import connected
    from streams_py.cli.records import existing_topics

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
