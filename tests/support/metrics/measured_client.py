"""As much of a client as is measured, around one stepped thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streams_py.runtime.client.metrics import MetricsInput, measure
from streams_py.runtime.processes.measured import Measured
from streams_py.runtime.thread.states import State
from streams_py.serdes import STRING
from streams_py.topology.declare.stores import key_value_store
from tests.support.runtime.world import Steps, World, counting, task, tp


class Client:
    """As much of a KafkaStreams as exporters look at, around one stepped thread that has counted three records."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.world = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
        notes = key_value_store("notes", key=STRING, value=STRING, persistent=False, logging=False)
        topology = counting().add_state_store(notes, "KSTREAM-AGGREGATE-0000000001")
        self.steps = Steps(self.world, topology, folder, dsl_store_suppliers_class="rocksDB", **settings)
        self.config = SimpleNamespace(application_id="app")
        self.level = settings.get("metrics_recording_level", "INFO")
        self.on_rebalance: Callable[[Any], None] = self.steps.instance.rebalance_listeners.append

    def work(self) -> None:
        self.steps.run({task("0_0"): [tp("in-0")]}, standby={task("0_1"): [tp("in-1")]})
        self.world.write("in", b"x", b"y", b"z")
        self.steps.turn(2)

    def metrics_input(self) -> MetricsInput:
        now_ms = self.world.clock.now_ms() + 2000
        return MetricsInput("app", "me", State.RUNNING, [self.steps.thread], 1, now_ms, is_debug=self.level != "INFO")

    def measure(self) -> list[Measured]:
        return list(measure(self.metrics_input()))
