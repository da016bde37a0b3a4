"""The snapshots of a client's state, as configured."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from streams_protocol.types import TopicPartition
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Admin, AdminError, AdminErrorKind
from streams_py.state.snapshots.snapshots import DELETE_RETENTION_MS, ChangelogNow, Snapshots
from streams_py.state.snapshots.storage import open_storage

_log = logging.getLogger("streams_py")

_TEMPORARY: Final = (AdminErrorKind.TIMED_OUT, AdminErrorKind.LEADER_NOT_AVAILABLE)


def snapshot_storage(config: StreamsConfig, *, persistent: bool) -> tuple[Any, str] | None:
    """Return the location of the snapshots; None if ``state.snapshot.store`` is empty or no store is on disk.

    Raises:
        ConfigError: The address is not usable.
    """
    if not config.state_snapshot_store:
        return None
    if not persistent:
        _log.warning("state.snapshot.store has no effect: this topology has no store on disk")
        return None
    return open_storage(config.state_snapshot_store)


def open_snapshots(storage: tuple[Any, str] | None, config: StreamsConfig, admin: Admin) -> Snapshots | None:
    """Open the snapshots at this location; None without a location."""
    if storage is None:
        return None

    def offsets(changelogs: Collection[TopicPartition]) -> Mapping[TopicPartition, ChangelogNow]:
        described = admin.describe_topics({changelog.topic for changelog in changelogs})
        first, end = admin.list_offsets(changelogs, earliest=True), admin.list_offsets(changelogs)
        asked = admin.delete_retention_ms({changelog.topic for changelog in changelogs})
        _check_answered(*described.values(), *first.values(), *end.values(), *asked.values())
        retentions = _delete_retentions(asked)
        known: dict[TopicPartition, ChangelogNow] = {}
        for changelog in changelogs:
            begins, ends, infos = first.get(changelog), end.get(changelog), described.get(changelog.topic)
            if isinstance(begins, int) and isinstance(ends, int) and isinstance(infos, tuple):
                retention_ms = retentions.get(changelog.topic, DELETE_RETENTION_MS)
                known[changelog] = ChangelogNow(begins, ends, infos[0].topic_id, retention_ms)
        return known

    return Snapshots(
        storage,
        config.application_id,
        admin.cluster_id,
        offsets,
        interval_s=config.state_snapshot_interval_ms / 1000,
        transactional=config.exactly_once,
    )


def _check_answered(*answers: object) -> None:
    """Raise BrokerUnavailableError if one of the answers is a temporary error."""
    for answer in answers:
        if isinstance(answer, AdminError) and answer.kind in _TEMPORARY:
            raise BrokerUnavailableError(f"its changelogs cannot be described now: {answer.message}")


def _delete_retentions(found: Mapping[str, int | AdminError | None]) -> dict[str, int | None]:
    """Replace errors by Kafka's default: reading topic configurations needs a permission that nothing else needs."""
    return {topic: DELETE_RETENTION_MS if isinstance(answer, AdminError) else answer for topic, answer in found.items()}
