"""Checks that existing internal topics have the ``cleanup.policy`` and retention that stores and tasks require.

A store is restored from its changelog. If brokers delete records of a changelog that must be compacted, the restored
store misses keys without any error. Compaction in turn removes records that the changelog of join windows or a
repartition topic needs. The leader creates missing topics with the right configuration but does not change existing
topics. So a topic that was created or altered outside of the application may differ.

Kafka Streams 4.3.1 has such a check (``InternalTopicManager.validate``), but no code calls it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from streams_py.errors import StreamsError
from streams_py.ports import Admin, AdminError, AdminErrorKind, TopicCleanup
from streams_py.topology.physical.metadata import InternalTopicKind, TopologyMetadata

_log = logging.getLogger("streams_py.leader")

_NO_LIMIT: Final = -1
_FINAL: Final = (AdminErrorKind.NOT_ALLOWED, AdminErrorKind.UNSUPPORTED)
"""Answers that stay the same until the client is restarted."""


class Required(NamedTuple):
    """The configuration that an internal topic requires."""

    kind: InternalTopicKind
    config: Mapping[str, str]
    is_source: bool = False
    """Whether the changelog is a source topic (``topology.optimization``)."""


def required_cleanup(metadata: TopologyMetadata) -> dict[str, Required]:
    """Return the requirement for each repartition topic, changelog, and source topic that serves as a changelog."""
    required: dict[str, Required] = {}
    for sub in metadata.subtopologies.values():
        for topic in (*sub.changelogs.values(), *sub.repartition_sources.values()):
            required[topic.name] = Required(topic.kind, topic.config)
        for name in sub.source_changelogs:
            required[name] = Required(InternalTopicKind.CHANGELOG, {"cleanup.policy": "compact"}, is_source=True)
    return required


def mismatch(topic: str, required: Required, found: TopicCleanup) -> str | None:
    """Return a warning if a topic's configuration does not meet the requirement, else None."""
    wanted = frozenset(required.config.get("cleanup.policy", "").replace(" ", "").split(","))
    deletes = "delete" in found.policy and (found.retention_ms >= 0 or found.retention_bytes >= 0)
    is_changelog = required.kind is InternalTopicKind.CHANGELOG
    keys = ["cleanup.policy"]
    if "compact" in found.policy and "compact" not in wanted:
        effect = (
            "compaction removes records that the store still needs"
            if is_changelog
            else "compaction removes records before they are processed, and brokers refuse records without a key"
        )
    elif deletes and "delete" not in wanted:
        effect = (
            "brokers delete old records, and a store that is restored from the topic misses the keys that were last "
            "written in these records"
        )
    elif deletes and (shorter := _shorter(required.config, found)):
        keys = shorter
        effect = (
            "brokers delete records that the store still needs, and a store that is restored from the topic misses them"
            if is_changelog
            else "brokers delete records before they are processed"
        )
    elif "compact" in wanted - found.policy:
        effect = "the topic keeps every update and grows, and restoring from it takes longer and longer"
    elif "delete" in wanted - found.policy:
        effect = "expired records stay in the topic, and it grows"
    else:
        return None
    what = "source topic" if required.is_source else "changelog topic" if is_changelog else "repartition topic"
    whose = " and is the changelog of a table (topology.optimization)" if required.is_source else ""
    has, needs = _values(found), {"retention.ms": "-1", "retention.bytes": "-1", **required.config}
    shown = dict.fromkeys((*keys, *(_limits(found) if deletes else ())))
    change = ",".join(f"{key}={_listed(needs[key])}" for key in keys)
    return (
        f"{what} {topic} has {', '.join(f'{key}={has[key]}' for key in shown)}{whose}, but requires "
        f"{', '.join(f'{key}={needs[key]}' for key in keys)}: {effect}. Change it: kafka-configs --alter "
        f"--entity-type topics --entity-name {topic} --add-config {change}"
    )


def _shorter(config: Mapping[str, str], found: TopicCleanup) -> list[str]:
    """Return the keys whose limit is below the required one."""
    return [
        key
        for key, limit in _limits(found).items()
        if (needed := _number(config.get(key))) is not None and (needed < 0 or limit < needed)
    ]


def _limits(found: TopicCleanup) -> dict[str, int]:
    limits = {"retention.ms": found.retention_ms, "retention.bytes": found.retention_bytes}
    return {key: limit for key, limit in limits.items() if limit >= 0}


def _values(found: TopicCleanup) -> dict[str, str]:
    policy = ",".join(sorted(found.policy))
    return {"cleanup.policy": policy} | {key: str(limit) for key, limit in _limits(found).items()}


def _number(text: str | None) -> int | None:
    """Return a limit from a configuration; None for text that is not a number, which brokers never accept."""
    try:
        return _NO_LIMIT if text is None else int(text)
    except ValueError:
        return None


def _listed(value: str) -> str:
    """Return a value in the syntax of kafka-configs."""
    return f"[{value}]" if "," in value else value


class CleanupCheck:
    """Logs a warning for each existing internal topic with the wrong clean-up settings, once per client and topic.

    The request runs on a daemon thread: it delays no rebalance, and its failure stops nothing.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._done: set[str] = set()
        self._thread: threading.Thread | None = None

    def begin(self, metadata: TopologyMetadata) -> None:
        """Check the topics that have not been checked, unless a request is already running. Called by the leader."""
        asked = {name: found for name, found in required_cleanup(metadata).items() if name not in self._done}
        if asked and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._check, args=(asked,), name="topic-cleanup", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Block until the current request has ended."""
        if self._thread is not None:
            self._thread.join()

    def _check(self, asked: Mapping[str, Required]) -> None:
        try:
            answers = self._admin.cleanup(asked.keys())
        except StreamsError as error:  # repeated at the next rebalance that this client leads
            _log.debug("cannot check the clean-up settings of internal topics: %s", error)
            return
        hidden: list[AdminError] = []
        for name, required in sorted(asked.items()):
            answer = answers.get(name)
            if isinstance(answer, TopicCleanup):
                self._done.add(name)
                text = mismatch(name, required, answer)
                if text is not None:
                    _log.warning("%s", text)
            elif answer is not None and answer.kind in _FINAL:
                self._done.add(name)
                if answer.kind is AdminErrorKind.NOT_ALLOWED:
                    hidden.append(answer)
        if hidden:
            _log.info("cleanup.policy of %d internal topics is not checked: %s", len(hidden), hidden[0].message)
