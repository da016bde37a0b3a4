"""A cluster in memory on which ``streams-py reset`` runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from streams_py.ports import PartitionInfo


class FakeCluster:
    """Topic "in" with offsets 10 to 100, position 50; internal topics of app and of app-two."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []
        self.bootstrap = "b:1"
        self.admin: Any = SimpleNamespace(
            describe_topics=lambda names: {
                topic: (PartitionInfo(topic, 0, 1, (1,), frozenset()),)
                for topic in ("in", "out", "app-x-changelog", "app-y-repartition", "app-two-x-changelog", "app-notes")
            },
            committed_offsets=lambda group, partitions: {at: 50 if at.topic == "in" else None for at in partitions},
            list_offsets=lambda partitions, *, earliest=False: dict.fromkeys(partitions, 10 if earliest else 100),
        )
        self.groups: Any = SimpleNamespace(
            list_groups=lambda: {"app": "classic", "app-two": "classic"},
            describe_group=lambda group: SimpleNamespace(members=()),
            offsets_at=lambda partitions, at_ms: dict.fromkeys(partitions, None if at_ms > 5000 else 42),
            set_offsets=lambda group, offsets: self.done.append(("offsets", offsets)),
            delete_topics=lambda topics: self.done.append(("topics", list(topics))),
        )
