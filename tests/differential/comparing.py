"""Runs drawn programs through Kafka Streams and through ours, and says where they differ."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from streams_py.errors import TopologyError
from streams_py.testing.in_process import InProcessTasks
from tests.support.topology.drawn_programs import build
from tests.support.topology.recorded_runs import by_topic, feed, in_one_order

_FAULTS_OF_JAVA = (
    # A window whose aggregate was deleted in the record cache stops Kafka Streams' emission on close.
    '"next.value" is null',
    # Suppress stores the topic of a record in its changelog, but the record of a punctuator has no topic.
    'Cannot invoke "String.getBytes(java.nio.charset.Charset)" because "this.topic" is null',
    # The optimizer has moved repartitions of branches of a merge, and then finds no key change above the merge.
    "Found a null keyChangingChild node for OptimizableRepartitionNode",
)
"""Parts of the messages of errors that end a valid program on Kafka Streams."""


class JavaPeer:
    """The Java process that runs programs. ``command`` starts it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def answer(self, program: Mapping[str, Any]) -> dict[str, Any]:
        """What Kafka Streams does: ``describe`` and ``rows``, or ``error``."""
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        into.write(json.dumps(program) + "\n")
        into.flush()
        line = out.readline()
        if not line:
            raise EOFError(f"Java ended with status {self._process.wait()} at {program['id']}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def difference(program: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """Return the first difference as text; None if the results are equal. All errors are considered equal.

    If the next records of two partitions of a task have equal timestamps, either may be processed first, so the records
    are not compared.
    """
    ties: list[int] = []
    try:
        topology = build(program)
        rows, _ = feed(topology, dict(program), before_step=lambda step, tasks: ties.append(tasks.ties))
    except Exception as error:
        return None if "error" in theirs else f"only ours fails: {type(error).__name__}: {error}"
    if any(fault in theirs.get("error", "") for fault in _FAULTS_OF_JAVA):
        return None
    if "error" in theirs:
        return f"only Kafka Streams fails: {theirs['error']}"
    return next(_differences(topology.describe(), None if any(ties) else list(rows), theirs), None)


def restarts_change(program: Mapping[str, Any], steps: Collection[int]) -> str | None:
    """Return as text what a restart of all tasks before each of these steps changes, with this library's results.

    The results are the records of all topics. Java's test driver cannot restart, so a run without restarts is the
    reference.
    """

    def restart(step: int, tasks: InProcessTasks) -> None:
        if step in steps:
            for task in tasks.tasks.values():
                committed = task.committable_offsets()
                task.suspend()
                task.resume()
                task.complete_restoration(committed)

    def run(before_step: Callable[[int, InProcessTasks], None]) -> list[Any] | None:
        try:
            topology = build(program, reference_behaviour=False)
        except TopologyError:
            return None
        return list(feed(topology, dict(program), reference_behaviour=False, before_step=before_step)[0])

    expected, found = run(lambda step, tasks: None), run(restart)
    if expected is None or found is None:
        return None
    return next(_in_topics(by_topic(found), by_topic(expected)), None)


def _differences(described: str, rows: list[Any] | None, theirs: Mapping[str, Any]) -> Iterator[str]:
    if in_one_order(described) != in_one_order(theirs["describe"]):
        lines = zip(in_one_order(described), in_one_order(theirs["describe"]), strict=False)
        yield next((f"describe: {one!r} is {other!r} there" for one, other in lines if one != other), "describe")
    if rows is None:
        return
    yield from _in_topics(by_topic(rows), by_topic(theirs["rows"]))


def _in_topics(ours: dict[str, list[Any]], expected: dict[str, list[Any]]) -> Iterator[str]:
    for topic in sorted(ours.keys() | expected.keys()):
        mine, other = ours.get(topic, []), expected.get(topic, [])
        if mine != other:
            at = next(
                (n for n, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), min(len(mine), len(other))
            )
            yield f"{topic} at row {at}: ours {mine[at : at + 2]}, theirs {other[at : at + 2]}"
