"""The plan of a backfill that writes to topics: what is read, fixed once, so that it can be gone on with.

It is a file from before the first record is written until the last one is. The same command with the same file reads
the same records again, makes the same outputs, and writes those that are missing.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from streams_py.errors import ConfigError
from streams_py.history.plan_files import read_plan, save_plan

__all__ = ["BackfillPlan"]

_FORMAT: Final = 2


@dataclass(frozen=True)
class BackfillPlan:
    """One backfill. ``inputs``: topic -> folder, or options ``starting`` and ``ending`` of ``streams-kafka``.
    ``until``: see ``streams_py.spark.run``. ``cluster``: id of that to whose topics it writes. ``id``: part of the
    names under which tasks write. ``place``: a topic that they commit beside, the same one however often it is gone
    on with. ``asked``: options ``starting`` and ``ending`` as they were given. ``topic_ids``: the cluster's ids of the
    topics that are read from it, and of those that are written. ``settings``: see
    :mod:`streams_py.history.result_settings`. ``outputs``: topic -> partitions, of what it writes to. ``partitions``:
    of archives, where they were given. ``writers``: names of those of its outputs that brokers were told of, see
    :mod:`streams_py.adapters.confluent.bulk.once_writer`."""

    application_id: str
    topology: str
    fingerprint: str
    inputs: dict[str, Any]
    until: int | None
    cluster: str | None
    id: str
    place: str
    done: bool = False
    asked: dict[str, str] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    writers: list[str] = field(default_factory=list)
    format: int = _FORMAT

    @classmethod
    def new(
        cls,
        application_id: str,
        topology: str,
        fingerprint: str,
        inputs: Mapping[str, Any],
        until: int | None,
        cluster: str | None,
        outputs: Mapping[str, int],
        asked: Mapping[str, str],
        topic_ids: Mapping[str, str],
        settings: Mapping[str, str],
        partitions: Mapping[str, int],
    ) -> BackfillPlan:
        """One that nothing is written of. ``outputs``: at least one."""
        return cls(
            application_id,
            topology,
            fingerprint,
            dict(inputs),
            until,
            cluster,
            uuid.uuid4().hex[:12],
            min(outputs),
            asked=dict(asked),
            topic_ids=dict(topic_ids),
            settings=dict(settings),
            outputs=dict(outputs),
            partitions=dict(partitions),
        )

    def save(self, path: Path) -> None:
        """Write the file. ConfigError when that cannot be."""
        save_plan(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> BackfillPlan | None:
        """The plan in a file, None when there is no file. ConfigError when it is none of a backfill."""
        try:
            found = read_plan(path, _FORMAT)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"the plan {path} cannot be read ({error.strerror}); name another with --plan") from None
        if found is not None:
            with contextlib.suppress(TypeError):
                return cls(**found)
        raise ConfigError(f"{path} is no plan of a backfill; name another file with --plan")

    def check(self, path: Path, fingerprint: str, application_id: str, until: int | None, cluster: str | None) -> None:
        """ConfigError when nothing is left to do, or when something else would be done."""
        if self.done:
            raise ConfigError(f"the backfill in {path} is complete; to write everything once more, delete the file")
        if (self.fingerprint, self.application_id, self.until) != (fingerprint, application_id, until):
            raise ConfigError(
                f"{path} is the plan of a backfill of {self.application_id} with another topology or another --until, "
                "which has begun; give what it was begun with, or name another file with --plan"
            )
        if None not in (self.cluster, cluster) and self.cluster != cluster:
            raise ConfigError(
                f"{path} is the plan of a backfill that has begun on cluster {self.cluster}, and this is {cluster}; "
                "name the other one with --bootstrap or --config, or another file with --plan"
            )

    def check_asked(self, path: Path, asked: Mapping[str, str]) -> None:
        """ConfigError when other records are to be read than before; ``asked`` as it is here."""
        different = sorted(key for key in {*self.asked, *asked} if self.asked.get(key) != asked.get(key))
        if different:
            before = self.asked.get(different[0])
            raise ConfigError(
                f"{path} is the plan of a backfill that has begun "
                + (f"without --option {different[0]}" if before is None else f"with --option {different[0]}={before}")
                + "; give it as it was, or name another file with --plan",
                key="--option",
            )

    def check_partitions(self, path: Path, given: Mapping[str, int]) -> None:
        """ConfigError when an archive is said to have other partitions than before: other tasks would make other
        outputs. The plan says how many where nobody does."""
        for topic, count in sorted(given.items()):
            before = self.partitions.get(topic)
            if before != count:
                raise ConfigError(
                    f"{path} is the plan of a backfill that has begun "
                    + (f"without --partitions {topic}" if before is None else f"with --partitions {topic}={before}")
                    + "; give it as it was, or name another file with --plan",
                    key="--partitions",
                )

    def check_topics(self, path: Path, topic_ids: Mapping[str, str], counts: Mapping[str, int]) -> None:
        """ConfigError when a topic is another one than before, or has another number of partitions. ``topic_ids`` and
        ``counts``: of the topics as they are now."""
        read = {topic: given for topic, given in self.inputs.items() if not isinstance(given, str)}
        known = {topic: len(json.loads(given["starting"])[topic]) for topic, given in read.items()}
        for topic, planned in sorted({**self.outputs, **known}.items()):
            if counts.get(topic, 0) != planned:
                raise ConfigError(
                    f"{path} is the plan of a backfill that has begun when {topic} had {planned} partitions, and it "
                    f"has {counts.get(topic, 0)} now; begin anew with another file (--plan), which writes everything"
                )
        for topic, id in sorted(self.topic_ids.items()):
            if topic_ids.get(topic, id) != id:
                raise ConfigError(
                    f"{path} is the plan of a backfill that has begun with another topic {topic}: it was deleted and "
                    "created again since; begin anew with another file (--plan), which writes everything"
                )

    def check_archives(self, path: Path, given: Mapping[str, Any]) -> None:
        """ConfigError when a topic is to be read from another folder than before; ``given`` as ``inputs``."""
        for topic, found in sorted(given.items()):
            before = self.inputs[topic]
            if isinstance(found, str) and found != before:
                where = before if isinstance(before, str) else "Kafka"
                raise ConfigError(
                    f"{path} is the plan of a backfill that has begun with {topic} from {where}, and this is {found}; "
                    "give --input as it was, or name another file with --plan",
                    key="--input",
                )
