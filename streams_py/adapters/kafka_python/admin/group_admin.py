"""Admin requests of command-line tools on kafka-python: it provides members' bytes, which confluent-kafka does not.

kafka-python's ``describe_groups`` converts the bytes to text, so this module sends the request itself. It uses the
private names ``_manager`` and ``_find_coordinator_id``, which the broker tests verify.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.admin import MemberToRemove
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from streams_protocol.types import TopicPartition
from streams_py import ports
from streams_py.adapters.kafka_python.admin.streams_groups import StreamsGroupDescribeRequest, streams_group
from streams_py.adapters.kafka_python.failures import is_retriable, translated, with_retries
from streams_py.adapters.kafka_python.quiet_logs import limit_library_logs
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports.described_groups import DescribedGroup, DescribedMember, DescribedStreamsGroup
from streams_py.ports.rights import GROUP, TOPIC, missing_right

T = TypeVar("T")

_PAUSE_S: Final = 0.2
_NOT_FOUND: Final = frozenset({"", "Dead"})
_IS_USED: Final = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.RebalanceInProgressError,
)


class KafkaPythonGroupAdmin:
    """The port ``GroupAdmin``.

    Args:
        connection: The result of ``kafka_python_connection``.
        timeout_ms: Time limit of one call.
    """

    def __init__(self, connection: Mapping[str, Any], *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._where = ",".join(connection["bootstrap_servers"])
        limits = {"bootstrap_timeout_ms": timeout_ms, "request_timeout_ms": timeout_ms}
        limit_library_logs()
        try:
            self._admin: Any = KafkaAdminClient(**connection, **limits)
        except kafka_errors.KafkaError as error:
            raise self._error(error, "connecting") from error

    def list_groups(self) -> Mapping[str, str]:
        """Return the type of each group; its protocol type with brokers that don't report group types."""
        listed = self._with_retries("the groups cannot be listed", self._admin.list_groups)
        return {str(group["group_id"]): str(group.get("group_type") or group["protocol_type"]) for group in listed}

    def describe_group(self, group: str) -> DescribedGroup:
        """Return the group with its members' bytes.

        Raises:
            StreamsError: The group does not exist.
            BrokerUnavailableError: No broker answers.
        """
        found = self.find_group(group)
        if found is None:
            raise StreamsError(f"group {group} does not exist at {self._where}")
        return found

    def find_group(self, group: str) -> DescribedGroup | None:
        """Return the group with its members' bytes; None if it does not exist.

        Raises StreamsError if the user may not describe the group. :meth:`list_groups` does not include such a group.
        """
        found = self._with_retries(f"group {group} cannot be described", lambda: self._describe(group), group)
        if found is None or found.group_state in _NOT_FOUND:
            return None
        return DescribedGroup(
            group,
            found.group_state,
            found.protocol_type,
            found.protocol_data,
            tuple(
                DescribedMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host.removeprefix("/"),
                    bytes(member.member_metadata),
                    bytes(member.member_assignment),
                )
                for member in found.members
            ),
        )

    def describe_streams_group(self, group: str) -> DescribedStreamsGroup | None:
        """Return a group of the streams protocol; see the port."""
        doing = f"group {group} of the streams protocol cannot be described"
        return self._with_retries(doing, lambda: self._describe_streams(group), group)

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int | None]:
        """Return the offset of the first record that is not older than ``timestamp_ms``; None without such a record."""
        asked = {KafkaPartition(*partition): timestamp_ms for partition in partitions}
        doing = f"the offsets at {timestamp_ms} cannot be listed"
        found = self._with_retries(doing, lambda: self._admin.list_partition_offsets(asked))
        result: dict[TopicPartition, int | None] = {}
        for partition in partitions:
            answer = found.get(KafkaPartition(*partition))
            if answer is None:
                raise BrokerUnavailableError(f"{doing}: the response does not include {partition}")
            result[partition] = answer.offset if answer.offset >= 0 else None
        return result

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offset of each partition that has one. Empty for a group that does not exist."""
        doing = f"the offsets of group {group} cannot be read"
        found = self._with_retries(doing, lambda: self._admin.list_group_offsets(group), group)
        if group not in found:
            raise BrokerUnavailableError(f"{doing}: the response does not include it")
        return {TopicPartition(*at): position.offset for at, position in found[group].items() if position.offset >= 0}

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete the committed offsets of partitions. Raises StreamsError with the first refused partition."""
        doing = f"offsets of group {group} cannot be deleted"
        wanted = [KafkaPartition(*partition) for partition in partitions]
        answers = self._with_retries(doing, lambda: self._admin.delete_group_offsets(group, wanted), group, "DELETE")
        for partition in wanted:
            error = answers.get(partition)
            if error is not kafka_errors.NoError:
                why = "the response does not include it" if error is None else error.__name__
                raise StreamsError(f"{doing}: {partition.topic}-{partition.partition}: {why}")

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int | ports.OffsetAndMetadata]) -> None:
        """Commit offsets for a group without members. Raises StreamsError with the first refused partition."""
        wanted = {}
        for at, position in offsets.items():
            offset, text = (position, "") if isinstance(position, int) else position
            wanted[KafkaPartition(*at)] = OffsetAndMetadata(offset, text, -1)
        doing = f"the offsets of group {group} cannot be set"
        answers = self._with_retries(doing, lambda: self._admin.alter_group_offsets(group, wanted), group, "READ")
        for partition in wanted:
            error = answers.get(partition)
            if error in _IS_USED:
                raise StreamsError(f"{doing}: it has members by now, so no offset was set; stop them, and start over")
            if error is not kafka_errors.NoError:
                why = "the response does not include it" if error is None else error.__name__
                if error is kafka_errors.TopicAuthorizationFailedError:
                    why = missing_right("READ", TOPIC, [partition.topic])
                raise StreamsError(f"{doing}: {partition.topic}-{partition.partition}: {why}")

    def remove_members(self, group: str, members: Collection[DescribedMember]) -> None:
        """Remove members from the group. Members that are alive will rejoin."""
        leaving = [
            MemberToRemove(group_instance_id=member.instance_id)
            if member.instance_id
            else MemberToRemove(member_id=member.member_id)
            for member in members
        ]
        doing = f"the members of group {group} cannot be removed"
        answers = self._with_retries(doing, lambda: self._admin.remove_group_members(group, leaving), group, "READ")
        gone = (kafka_errors.NoError, kafka_errors.UnknownMemberIdError)
        refused = [error.__name__ for error in answers.values() if error not in gone]
        if refused or len(answers) != len(leaving):
            raise StreamsError(f"{doing}: {', '.join(refused) or 'the response does not include all of them'}")

    def remove_dead_members(self, group: str, member_ids: Collection[str], reason: str) -> frozenset[str]:
        """Remove dynamic members by their ids; see the port. Brokers log ``reason`` (KIP-800)."""
        if not member_ids:
            return frozenset()
        leaving = [MemberToRemove(member_id=member_id, reason=reason) for member_id in member_ids]
        doing = f"dead members of group {group} cannot be removed"
        answers = self._with_retries(doing, lambda: self._admin.remove_group_members(group, leaving), group, "READ")
        gone = (kafka_errors.NoError, kafka_errors.UnknownMemberIdError)
        refused = sorted({error.__name__ for error in answers.values() if error not in gone})
        if refused:
            raise StreamsError(f"{doing}: {', '.join(refused)}")
        return frozenset(member_id for member_id in member_ids if answers.get(member_id) is kafka_errors.NoError)

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its committed offsets. Raises StreamsError when that is refused."""
        doing = f"group {group} cannot be deleted"
        answer = self._with_retries(doing, lambda: self._admin.delete_groups([group]), group, "DELETE").get(group)
        if answer == kafka_errors.GroupAuthorizationFailedError.__name__:
            raise StreamsError(f"{doing}: {missing_right('DELETE', GROUP, [group])}")
        if answer not in ("OK", kafka_errors.GroupIdNotFoundError.__name__):
            raise StreamsError(f"{doing}: {'the response does not include it' if answer is None else answer}")

    def delete_topics(self, topics: Collection[str]) -> None:
        """Delete topics; a missing topic is not an error. Raises StreamsError with the first refused topic."""
        doing = f"{', '.join(sorted(topics))} cannot be deleted"
        answer = self._with_retries(doing, lambda: self._admin.delete_topics(sorted(topics), raise_errors=False))
        if {one["name"] for one in answer["topics"]} != set(topics):
            raise BrokerUnavailableError(f"{doing}: the response does not include all of them")
        for one in answer["topics"]:
            error = kafka_errors.for_code(one["error_code"])
            if error not in (kafka_errors.NoError, kafka_errors.UnknownTopicOrPartitionError):
                why = error.__name__
                if error is kafka_errors.TopicAuthorizationFailedError:
                    why = missing_right("DELETE", TOPIC, [one["name"]])
                raise StreamsError(f"topic {one['name']} cannot be deleted: {why}")

    def log_bytes(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Return the size of the largest replica of each partition on disk, in bytes.

        The result does not include partitions whose size no broker reports. It requires DESCRIBE on the cluster.
        """
        doing = f"the sizes of {', '.join(sorted(topics))} cannot be listed"
        answers = self._with_retries(doing, lambda: self._admin.describe_log_dirs(sorted(topics)))
        sizes: dict[TopicPartition, int] = {}
        folders = (folder for answer in answers for folder in answer["log_dirs"])
        for topic in (topic for folder in folders for topic in folder["topics"]):
            for replica in topic["partitions"]:
                at = TopicPartition(topic["name"], replica["partition_index"])
                sizes[at] = max(sizes.get(at, 0), replica["partition_size"])
        return sizes

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def _describe(self, group: str) -> Any:
        manager = self._admin._manager
        coordinator = manager.run(self._admin._find_coordinator_id, group)
        answer = manager.run(manager.send, DescribeGroupsRequest(groups=[group]), coordinator)
        (found,) = answer.groups
        error = kafka_errors.for_code(found.error_code)
        if error is kafka_errors.GroupIdNotFoundError:
            return None
        if error is not kafka_errors.NoError:
            raise error()
        if found.group_id != group:
            raise StreamsError(f"the broker answered a request for group {group} with group {found.group_id!r}")
        return found

    def _describe_streams(self, group: str) -> DescribedStreamsGroup | None:
        manager = self._admin._manager
        coordinator = manager.run(self._admin._find_coordinator_id, group)
        request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        try:
            answer = manager.run(manager.send, request, coordinator)
        except (kafka_errors.IncompatibleBrokerVersion, kafka_errors.UnsupportedVersionError):
            return None
        (found,) = answer.groups
        error = kafka_errors.for_code(found.error_code)
        if error in (kafka_errors.GroupIdNotFoundError, kafka_errors.UnsupportedVersionError):
            return None
        if error is not kafka_errors.NoError:
            raise error(found.error_message or "")
        if found.group_id != group:
            raise StreamsError(f"the broker answered a request for group {group} with group {found.group_id!r}")
        return streams_group(found)

    def _with_retries(self, failing: str, ask: Callable[[], T], group: str = "", right: str = "DESCRIBE") -> T:
        return with_retries(
            ask, lambda error: self._error(error, failing, group, right), timeout_ms=self._timeout_ms, pause_s=_PAUSE_S
        )

    def _error(
        self, error: kafka_errors.KafkaError, failing: str, group: str = "", right: str = "DESCRIBE"
    ) -> BaseException:
        if is_retriable(error) or isinstance(error, kafka_errors.KafkaTimeoutError):
            return BrokerUnavailableError(
                f"{failing}: no answer from {self._where} within {self._timeout_ms} ms: {error}"
            )
        return translated(error, f"{failing} at {self._where}", group=group, right=right)
