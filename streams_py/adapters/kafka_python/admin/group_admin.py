"""What operators' tools ask for, by kafka-python: it keeps the members' bytes, which confluent-kafka does not hand out.

Its own ``describe_groups`` turns the bytes into text, so the request is made here. Private names: ``_manager`` and
``_find_coordinator_id``; the broker tests watch them.
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
from streams_py.adapters.kafka_python.failures import is_retriable, patiently, translated
from streams_py.adapters.kafka_python.quiet_logs import limit_library_logs
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports.described_groups import DescribedGroup, DescribedMember, DescribedStreamsGroup
from streams_py.ports.rights import GROUP, TOPIC, missing_right

__all__ = ["KafkaPythonGroupAdmin"]

T = TypeVar("T")

_PAUSE_S: Final = 0.2
_NOT_FOUND: Final = frozenset({"", "Dead"})
_IS_USED: Final = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.RebalanceInProgressError,
)


class KafkaPythonGroupAdmin:
    """Port ``GroupAdmin``. ``connection`` as from ``kafka_python_connection``; ``timeout_ms`` bounds one call."""

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
        """Group -> its type, or its protocol type on brokers that know no types."""
        listed = self._patiently("the groups cannot be listed", self._admin.list_groups)
        return {str(group["group_id"]): str(group.get("group_type") or group["protocol_type"]) for group in listed}

    def describe_group(self, group: str) -> DescribedGroup:
        """The group with its members' bytes. StreamsError when there is none, BrokerUnavailableError in an outage."""
        found = self.find_group(group)
        if found is None:
            raise StreamsError(f"there is no group {group} at {self._where}")
        return found

    def find_group(self, group: str) -> DescribedGroup | None:
        """The same; None when there is none. A group that the user may not see is an error: the list leaves it out."""
        found = self._patiently(f"group {group} cannot be described", lambda: self._describe(group), group)
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
        """As the port says."""
        doing = f"group {group} of the streams protocol cannot be described"
        return self._patiently(doing, lambda: self._describe_streams(group), group)

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int | None]:
        """Offset of the first record with this timestamp or a later one; None where there is none."""
        asked = {KafkaPartition(*partition): timestamp_ms for partition in partitions}
        doing = f"the offsets at {timestamp_ms} cannot be listed"
        found = self._patiently(doing, lambda: self._admin.list_partition_offsets(asked))
        result: dict[TopicPartition, int | None] = {}
        for partition in partitions:
            answer = found.get(KafkaPartition(*partition))
            if answer is None:
                raise BrokerUnavailableError(f"{doing}: the answer leaves out {partition}")
            result[partition] = answer.offset if answer.offset >= 0 else None
        return result

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed position of each partition that has one. Empty for a group that does not exist."""
        doing = f"the offsets of group {group} cannot be read"
        found = self._patiently(doing, lambda: self._admin.list_group_offsets(group), group)
        if group not in found:
            raise BrokerUnavailableError(f"{doing}: the answer leaves it out")
        return {TopicPartition(*at): position.offset for at, position in found[group].items() if position.offset >= 0}

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Remove the committed positions of some partitions. StreamsError names what was refused."""
        doing = f"offsets of group {group} cannot be deleted"
        wanted = [KafkaPartition(*partition) for partition in partitions]
        answers = self._patiently(doing, lambda: self._admin.delete_group_offsets(group, wanted), group, "DELETE")
        for partition in wanted:
            error = answers.get(partition)
            if error is not kafka_errors.NoError:
                why = "the answer leaves it out" if error is None else error.__name__
                raise StreamsError(f"{doing}: {partition.topic}-{partition.partition}: {why}")

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, int | ports.OffsetAndMetadata]) -> None:
        """Commit positions for a group without members. StreamsError names what was refused."""
        wanted = {}
        for at, position in offsets.items():
            offset, text = (position, "") if isinstance(position, int) else position
            wanted[KafkaPartition(*at)] = OffsetAndMetadata(offset, text, -1)
        doing = f"the offsets of group {group} cannot be set"
        answers = self._patiently(doing, lambda: self._admin.alter_group_offsets(group, wanted), group, "READ")
        for partition in wanted:
            error = answers.get(partition)
            if error in _IS_USED:
                raise StreamsError(f"{doing}: it has members by now, so nothing was set; stop them, and begin again")
            if error is not kafka_errors.NoError:
                why = "the answer leaves it out" if error is None else error.__name__
                if error is kafka_errors.TopicAuthorizationFailedError:
                    why = missing_right("READ", TOPIC, [partition.topic])
                raise StreamsError(f"{doing}: {partition.topic}-{partition.partition}: {why}")

    def remove_members(self, group: str, members: Collection[DescribedMember]) -> None:
        """Have the coordinator forget these members; those that live will join again."""
        leaving = [
            MemberToRemove(group_instance_id=member.instance_id)
            if member.instance_id
            else MemberToRemove(member_id=member.member_id)
            for member in members
        ]
        doing = f"the members of group {group} cannot be removed"
        answers = self._patiently(doing, lambda: self._admin.remove_group_members(group, leaving), group, "READ")
        gone = (kafka_errors.NoError, kafka_errors.UnknownMemberIdError)
        refused = [error.__name__ for error in answers.values() if error not in gone]
        if refused or len(answers) != len(leaving):
            raise StreamsError(f"{doing}: {', '.join(refused) or 'the answer leaves some out'}")

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and everything it has committed. StreamsError names what was refused."""
        doing = f"group {group} cannot be deleted"
        answer = self._patiently(doing, lambda: self._admin.delete_groups([group]), group, "DELETE").get(group)
        if answer == kafka_errors.GroupAuthorizationFailedError.__name__:
            raise StreamsError(f"{doing}: {missing_right('DELETE', GROUP, [group])}")
        if answer not in ("OK", kafka_errors.GroupIdNotFoundError.__name__):
            raise StreamsError(f"{doing}: {'the answer leaves it out' if answer is None else answer}")

    def delete_topics(self, topics: Collection[str]) -> None:
        """Delete topics; one that is gone already is as well. StreamsError names what was refused."""
        doing = f"{', '.join(sorted(topics))} cannot be deleted"
        answer = self._patiently(doing, lambda: self._admin.delete_topics(sorted(topics), raise_errors=False))
        if {one["name"] for one in answer["topics"]} != set(topics):
            raise BrokerUnavailableError(f"{doing}: the answer leaves some out")
        for one in answer["topics"]:
            error = kafka_errors.for_code(one["error_code"])
            if error not in (kafka_errors.NoError, kafka_errors.UnknownTopicOrPartitionError):
                why = error.__name__
                if error is kafka_errors.TopicAuthorizationFailedError:
                    why = missing_right("DELETE", TOPIC, [one["name"]])
                raise StreamsError(f"topic {one['name']} cannot be deleted: {why}")

    def log_bytes(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """How large a replica is on disk. Partitions of which no broker says so are missing: it takes the right
        DESCRIBE on the cluster."""
        doing = f"the sizes of {', '.join(sorted(topics))} cannot be listed"
        answers = self._patiently(doing, lambda: self._admin.describe_log_dirs(sorted(topics)))
        sizes: dict[TopicPartition, int] = {}
        folders = (folder for answer in answers for folder in answer["log_dirs"])
        for topic in (topic for folder in folders for topic in folder["topics"]):
            for replica in topic["partitions"]:
                at = TopicPartition(topic["name"], replica["partition_index"])
                sizes[at] = max(sizes.get(at, 0), replica["partition_size"])
        return sizes

    def close(self) -> None:
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
            raise StreamsError(f"the broker was asked for group {group} and answered for {found.group_id!r}")
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
            raise StreamsError(f"the broker was asked for group {group} and answered for {found.group_id!r}")
        return streams_group(found)

    def _patiently(self, failing: str, ask: Callable[[], T], group: str = "", right: str = "DESCRIBE") -> T:
        return patiently(
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
