"""StreamsGroupDescribe (KIP-1071), for groups whose coordinator assigns tasks. kafka-python lacks this request."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from kafka.protocol.api_message import ApiMessage

from streams_protocol.types import TaskId
from streams_py.ports.described_groups import DescribedStreamsGroup, DescribedStreamsMember, DescribedSubtopology

_LAYOUTS = "streams_py.adapters.kafka_python.messages"


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads layouts with a deprecated function

    class StreamsGroupDescribeRequest(ApiMessage, load_json=_LAYOUTS):  # type: ignore[misc,call-arg]
        """The request, API key 89."""

    class StreamsGroupDescribeResponse(ApiMessage, load_json=_LAYOUTS):  # type: ignore[misc,call-arg]
        """The response: topology, members, their current and their target assignments."""


def streams_group(found: Any) -> DescribedStreamsGroup:
    """Convert a group of the response to the port's type.

    Task ids require a numeric sub-topology id. Sub-topologies with other ids are listed in the last field.
    """
    unknown: set[str] = set()
    subs = () if found.topology is None else found.topology.subtopologies or ()
    return DescribedStreamsGroup(
        found.group_id,
        found.group_state,
        found.group_epoch,
        tuple(
            DescribedSubtopology(
                int(sub.subtopology_id),
                tuple(sub.source_topics),
                tuple(topic.name for topic in sub.repartition_source_topics),
                tuple(topic.name for topic in sub.state_changelog_topics),
            )
            for sub in subs
            if _is_number(sub.subtopology_id, unknown)
        ),
        tuple(_member(member, unknown) for member in found.members),
        tuple(sorted(unknown)),
    )


def _member(member: Any, unknown: set[str]) -> DescribedStreamsMember:
    endpoint = member.user_endpoint
    return DescribedStreamsMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        member.rack_id,
        member.process_id,
        member.member_epoch,
        {tag.key: tag.value for tag in member.client_tags},
        None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        dict(_offsets(member.task_offsets, unknown)),
        dict(_offsets(member.task_end_offsets, unknown)),
        frozenset(_tasks(member.assignment.active_tasks, unknown)),
        frozenset(_tasks(member.assignment.standby_tasks, unknown)),
        frozenset(_tasks(member.assignment.warmup_tasks, unknown)),
        frozenset(_tasks(member.target_assignment.active_tasks, unknown)),
    )


def _tasks(given: Iterable[Any], unknown: set[str]) -> Iterator[TaskId]:
    for ids in given:
        if _is_number(ids.subtopology_id, unknown):
            for partition in ids.partitions:
                yield TaskId(int(ids.subtopology_id), partition)


def _offsets(given: Iterable[Any], unknown: set[str]) -> Iterator[tuple[TaskId, int]]:
    for each in given:
        if _is_number(each.subtopology_id, unknown):
            yield TaskId(int(each.subtopology_id), each.partition), each.offset


def _is_number(subtopology: str, unknown: set[str]) -> bool:
    if subtopology.isascii() and subtopology.isdigit() and len(subtopology) < 10:
        return True
    unknown.add(subtopology)
    return False
