"""Processed records of repartition topics are deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streams_py import serdes
from streams_py.topology.declare.processor import Processor
from streams_py.topology.dsl.builder import StreamsBuilder
from tests.support.runtime.world import Steps, World, task, tp

A = task("0_0")


class Committing(Processor):
    """Forwards each record and requests a commit."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.forward(record)
        self.context.commit()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_requested_commits_delete_processed_repartition_records_when_the_commit_interval_is_huge(
    world: World, tmp_path: Path, guarantee: str
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    stream = stream.repartition(name="step", partitions=1, key=serdes.BYTES, value=serdes.BYTES)
    stream.process(Committing, key=serdes.BYTES, value=serdes.BYTES).to("out", key=serdes.BYTES, value=serdes.BYTES)
    world.topics["app-step-repartition"] = 1
    steps = Steps(
        world,
        builder.build(),
        tmp_path,
        repartition_purge_interval_ms=5000,
        commit_interval_ms=10**8,
        producer_transaction_timeout_ms=10**9,
        processing_guarantee=guarantee,
    )
    steps.run({A: [tp("in-0")], task("1_0"): [tp("app-step-repartition-0")]})
    repartitioned_at = tp("app-step-repartition-0")
    for value in (b"a", b"b", b"c"):
        world.write("app-step-repartition", value)
        world.clock.advance(2600)
        steps.turn(2)
    deleted = [entry for entry in world.diary if entry[0] == "delete records"]
    assert deleted == [("delete records", {repartitioned_at: 2})]
