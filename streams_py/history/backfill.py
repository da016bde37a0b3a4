"""The plan of a backfill that writes to topics. It fixes the inputs, so that an interrupted backfill can continue.

The plan is written to a file before the first record is written to a topic. The same command with the same file reads
the same records again, creates the same outputs, and writes the missing ones.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from streams_py.errors import ConfigError
from streams_py.history.plan_files import load_plan, save_plan

_FORMAT: Final = 2


@dataclass(frozen=True)
class BackfillPlan:
    """The plan of one backfill.

    Attributes:
        application_id: the application.
        topology: ``module:name`` of the topology.
        fingerprint: identifies the topology, see :mod:`streams_py.history.fingerprint`.
        inputs: topic -> folder, or options ``starting`` and ``ending`` of the data source ``streams-kafka``.
        until: see ``streams_py.spark.run``.
        cluster: the id of the cluster that outputs are written to.
        place: the output topic in whose name tasks commit their progress. It stays the same for all attempts.
        id: part of the names of output writers.
        done: whether all outputs are written.
        asked: options ``starting`` and ``ending`` as the user passed them.
        topic_ids: the cluster's ids of the input topics that are read from it, and of the output topics.
        settings: see :mod:`streams_py.history.fingerprint`.
        outputs: output topic -> partitions.
        partitions: archived topic -> partitions, as the user passed them.
        writers: names of output writers that brokers know, see
            :mod:`streams_py.adapters.confluent.bulk.once_writer`.
        format: the version of the file's layout.
    """

    application_id: str
    topology: str
    fingerprint: str
    inputs: dict[str, Any]
    until: int | None
    cluster: str | None
    place: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    done: bool = False
    asked: dict[str, str] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    writers: list[str] = field(default_factory=list)
    format: int = _FORMAT

    def save(self, path: Path) -> None:
        """Write the file. Raises ConfigError when it cannot be written."""
        save_plan(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> BackfillPlan | None:
        """Read a plan; None when the file does not exist. Raises ConfigError when it is not the plan of a backfill."""
        return load_plan(cls, path, _FORMAT, "the plan of a backfill", "name another file with --plan")

    def check(self, path: Path, fingerprint: str, application_id: str, until: int | None, cluster: str | None) -> None:
        """Raise ConfigError when the backfill is complete, or the arguments differ from the plan's."""
        if self.done:
            raise ConfigError(f"the backfill in {path} is complete; to write everything again, delete the file")
        if (self.fingerprint, self.application_id, self.until) != (fingerprint, application_id, until):
            raise ConfigError(
                f"{path} is the plan of a started backfill of {self.application_id} with another topology, "
                "application.id or --until; pass the same values as before, or name another file with --plan"
            )
        if None not in (self.cluster, cluster) and self.cluster != cluster:
            raise ConfigError(
                f"{path} is the plan of a backfill that was started on cluster {self.cluster}, but this is cluster "
                f"{cluster}; name the other cluster with --bootstrap or --config, or another file with --plan"
            )

    def check_asked(self, path: Path, asked: Mapping[str, str]) -> None:
        """Raise ConfigError when the options in ``asked`` would read other records than before."""
        different = sorted(key for key in {*self.asked, *asked} if self.asked.get(key) != asked.get(key))
        if different:
            before = self.asked.get(different[0])
            raise ConfigError(
                f"{path} is the plan of a backfill that was started "
                + (f"without --option {different[0]}" if before is None else f"with --option {different[0]}={before}")
                + "; pass the same as before, or name another file with --plan",
                key="--option",
            )

    def check_partitions(self, path: Path, given: Mapping[str, int]) -> None:
        """Raise ConfigError when partition counts of archives differ from the plan's.

        Other tasks would create other outputs. A topic that is not in ``given`` keeps the plan's partition count.
        """
        for topic, count in sorted(given.items()):
            before = self.partitions.get(topic)
            if before != count:
                raise ConfigError(
                    f"{path} is the plan of a backfill that was started "
                    + (f"without --partitions {topic}" if before is None else f"with --partitions {topic}={before}")
                    + "; pass the same as before, or name another file with --plan",
                    key="--partitions",
                )

    def check_topics(self, path: Path, topic_ids: Mapping[str, str], counts: Mapping[str, int]) -> None:
        """Raise ConfigError when a topic was recreated, or has another partition count than the plan.

        Args:
            path: the plan's file.
            topic_ids: current ids of the topics.
            counts: current partition counts of the topics.
        """
        read = {topic: given for topic, given in self.inputs.items() if not isinstance(given, str)}
        known = {topic: len(json.loads(given["starting"])[topic]) for topic, given in read.items()}
        for topic, planned in sorted({**self.outputs, **known}.items()):
            if counts.get(topic, 0) != planned:
                raise ConfigError(
                    f"{path} is the plan of a backfill that was started when {topic} had {planned} partitions, but it "
                    f"has {counts.get(topic, 0)} now; start again with another file (--plan), which writes everything"
                )
        for topic, id in sorted(self.topic_ids.items()):
            if topic_ids.get(topic, id) != id:
                raise ConfigError(
                    f"{path} is the plan of a backfill that was started with another topic {topic}: it was deleted and "
                    "created again since; start again with another file (--plan), which writes everything"
                )

    def check_archives(self, path: Path, given: Mapping[str, Any]) -> None:
        """Raise ConfigError when ``given`` (like ``inputs``) reads a topic from another folder than before."""
        for topic, found in sorted(given.items()):
            before = self.inputs[topic]
            if isinstance(found, str) and found != before:
                where = before if isinstance(before, str) else "Kafka"
                raise ConfigError(
                    f"{path} is the plan of a backfill that was started with {topic} from {where}, not from {found}; "
                    "pass --input as before, or name another file with --plan",
                    key="--input",
                )
