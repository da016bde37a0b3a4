"""``streams-py topics``: lists or creates topics."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated

import typer

from streams_protocol.types import TopicPartition
from streams_py.cli.connecting import Connection, connected
from streams_py.cli.options import BOOTSTRAP_OR_EMBEDDED, CONFIG, EMBEDDED
from streams_py.cli.usage import RefusedError, cut_off_output, refusing
from streams_py.clients.factory import KafkaClients
from streams_py.errors import StreamsError
from streams_py.ports import Admin, AdminError, PartitionInfo, TopicSpec
from streams_py.topology.declare.names import check_topic

Topics = Mapping[str, tuple[PartitionInfo, ...]]


@refusing
def topics(
    create: Annotated[str | None, typer.Option(metavar="NAME", help="Create this topic.")] = None,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="With --create: number of partitions.")
    ] = 4,
    bootstrap: BOOTSTRAP_OR_EMBEDDED = None,
    config: CONFIG = None,
) -> int:
    """List the topics of a cluster, or create one.

    Exit status: 0 done; 2 wrong usage, or the cluster does not answer or rejects the request.

    Examples:

      streams-py topics

      streams-py topics --create text-lines --partitions 4 --bootstrap localhost:9092
    """
    if create is not None:
        check_topic(create)  # the embedded cluster accepts any name
    with cut_off_output(), connected(bootstrap, config, "streams-py", EMBEDDED) as cluster:
        if create is None:
            _list_topics(cluster)
        else:
            _create_topic(cluster.admin, create, partitions)
    return 0


def _list_topics(cluster: Connection) -> None:
    """Print every topic with its numbers of partitions and records."""
    topics = existing_topics(cluster.admin)
    if not topics:
        print(f"no topics at {cluster.bootstrap}. {_how_topics_come(cluster.clients)}", file=sys.stderr)
        return
    partitions = [TopicPartition(name, info.partition) for name, infos in topics.items() for info in infos]
    counts = dict.fromkeys(topics, 0)
    for partition, (first, end) in ranges_of(cluster.admin, partitions).items():
        counts[partition.topic] += end - first
    width = max(len("topic"), *map(len, topics))
    print(f"{'topic':{width}}  partitions  records")
    for name, infos in topics.items():
        print(f"{name:{width}}  {len(infos):10}  {counts[name]:7}")


def _create_topic(admin: Admin, name: str, partitions: int) -> None:
    failed = admin.create_topics([TopicSpec(name, partitions)])[name]
    if failed is not None:
        raise StreamsError(f"topic {name} could not be created: {failed.kind.value}: {failed.message}")
    print(f"created {name} with {partitions} partitions")


def existing_topics(admin: Admin) -> Topics:
    return {
        name: found
        for name, found in sorted(admin.describe_topics(None).items())
        if not isinstance(found, AdminError) and not name.startswith("__")
    }


def partitions_of(topic: str, admin: Admin, clients: KafkaClients) -> list[TopicPartition]:
    """Return the partitions of a topic.

    Lists all topics, because some brokers create a topic when asked for it.
    """
    topics = existing_topics(admin)
    if topic in topics:
        return [TopicPartition(topic, info.partition) for info in topics[topic]]
    near = get_close_matches(topic, topics, n=1)
    if near:
        raise RefusedError(f"topic {topic} does not exist; did you mean {near[0]}?")
    raise RefusedError(
        f"topic {topic} does not exist; existing topics: {', '.join(topics) or '(no topics)'}. "
        f"{_how_topics_come(clients)}"
    )


def _how_topics_come(clients: KafkaClients) -> str:
    if clients.embedded is None:
        return "Create a topic with: streams-py topics --create NAME"
    return (
        "The embedded cluster exists while a process uses it, and is empty at first. Start the application first: it "
        "creates its topics"
    )


def ranges_of(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset and the end offset of each partition."""
    first, end = admin.list_offsets(partitions, earliest=True), admin.list_offsets(partitions)
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for partition in partitions:
        low, high = first[partition], end[partition]
        if isinstance(low, AdminError) or isinstance(high, AdminError):
            problem = low if isinstance(low, AdminError) else high
            raise StreamsError(f"cannot fetch the offsets of {partition}: {problem}")
        ranges[partition] = low, high
    return ranges
