"""Drawn programs on Kafka Streams and on ours, with the behaviour of Kafka Streams switched on: the topology and the
records of all topics are equal. And drawn programs with a restart in the middle: it changes no result of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from streams_py.testing.broker import NoBrokerError

from .comparing import JavaPeer, difference, restarts_change
from .drawing import draw
from .jars import java_command

FIRST = int(os.environ.get("STREAMS_PY_FUZZ_SEED", "0"))
PROGRAMS = int(os.environ.get("STREAMS_PY_FUZZ_PROGRAMS", "3000"))
"""In a third of them two partitions of a task have equally old records, so that only their topologies are compared."""
AT_ONCE = 100
OPTIMIZATIONS = ("none", "all")


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPeer]:
    try:
        command = java_command(tmp_path_factory.mktemp("java"))
    except NoBrokerError as error:
        pytest.skip(f"programs are compared with Kafka Streams on Java only: {error}")
    running = JavaPeer(command)
    yield running
    running.close()


@pytest.mark.weekly
@pytest.mark.broker
@pytest.mark.parametrize("optimization", OPTIMIZATIONS)
@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS, AT_ONCE))
def test_programs_do_what_kafka_streams_does(peer: JavaPeer, first: int, optimization: str) -> None:
    seeds = range(first, min(first + AT_ONCE, FIRST + PROGRAMS))
    programs = [{**draw(seed), "optimization": optimization} for seed in seeds]
    found = {program["id"]: difference(program, peer.answer(program)) for program in programs}
    assert {id: what for id, what in found.items() if what is not None} == {}


@pytest.mark.weekly
@pytest.mark.broker
def test_a_program_that_does_something_else_is_noticed(peer: JavaPeer) -> None:
    """Tests the comparison itself: without the first row of each answer, it must find differences in some programs."""
    programs = [draw(seed) for seed in range(60)]
    answers = [peer.answer(program) for program in programs]
    assert not all(difference(program, {**answer, "rows": answer.get("rows", [])[1:]}) is None
                   for program, answer in zip(programs, answers, strict=True))  # fmt: skip


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(FIRST + at, marks=pytest.mark.weekly) for at in range(40, 1000, 40))]
)
def test_restarts_change_no_result(first: int) -> None:
    found = {}
    for seed in range(first, first + 40):
        program = draw(seed)
        if not any("period" in step for step in program["steps"]):  # a punctuator starts again
            steps = {len(program["inputs"]) // 3, 2 * len(program["inputs"]) // 3}
            found[seed] = restarts_change({**program, "emit": 0}, steps)  # so does the throttle of emission
    assert len(found) > 20
    assert {seed: what for seed, what in found.items() if what is not None} == {}
