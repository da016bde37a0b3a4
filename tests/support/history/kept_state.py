"""Programs whose state a history keeps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streams_py import StreamsBuilder, Topology, serdes
from streams_py.topology.declare.custom_stores import ChangelogRecord, CustomStateStore, StateStoreContext, custom_store

TEXT: Any = {"key": serdes.STRING, "value": serdes.STRING}


def prices() -> StreamsBuilder:
    builder = StreamsBuilder(**TEXT)
    builder.table("prices", store="table").to_stream().to("out")
    return builder


class Own(CustomStateStore):
    """Counts records, on disk."""

    count = 0

    def open(self, context: StateStoreContext) -> None:
        super().open(context)
        self.file = Path(str(context.state_dir), "count")
        self.file.parent.mkdir(parents=True)

    def restore(self, records: Iterable[ChangelogRecord]) -> None:
        self.count = sum(1 for _ in records)

    def clear(self) -> None:
        self.count = 0

    def close(self) -> None:
        pass

    def add(self, key: str) -> None:
        self.count = int(self.file.read_text()) + 1 if self.file.exists() else 1
        self.file.write_text(str(self.count))
        self.context.log_change(key.encode(), b"%d" % self.count)


def own(logging: bool) -> Topology:
    def adds(record: Any, context: Any) -> None:
        context.get_state_store("own").add(record.key)

    adds.batch_safe = True  # type: ignore[attr-defined]
    builder = StreamsBuilder(**TEXT)
    builder.add_state_store(custom_store("own", Own, logging=logging))
    builder.global_table("rates", store="rates")
    builder.stream("orders").process(adds, stores=["own"])
    return builder.build()
