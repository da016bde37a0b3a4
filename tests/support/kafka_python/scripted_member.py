"""A member of a group whose coordinator is a script."""

from __future__ import annotations

from collections import deque

from kafka.consumer.subscription_state import SubscriptionState
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from streams_protocol.consumer import Assignment, decode_subscription, encode_assignment
from streams_protocol.types import TopicPartition
from streams_py.adapters.kafka_python.classic.coordinator import PROTOCOL_NAME, StreamsCoordinator
from streams_py.adapters.kafka_python.classic.options import ClusterRules, MemberOptions
from streams_py.ports import OffsetAndMetadata

T0, T1, T2 = (TopicPartition("t", i) for i in range(3))

UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS = 25, 22, 27

MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID, GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST = 79, 82, 30, 42


class InlineInbox:
    """Makes each call immediately, on the same thread."""

    async def call(self, function, *arguments):
        return function(*arguments)

    def wake(self):
        pass


class RecordingListener:
    """Writes calls and requests into one list, so that their order shows."""

    def __init__(self, calls):
        self.calls = calls
        self.problems = {}
        self.doubts = []
        self.waits = 0
        self.joins = 0

    def _record(self, name, partitions=()):
        self.calls.append((name, tuple(partitions)))
        if name in self.problems:
            raise self.problems[name]

    def subscription_user_data(self, topics, member_id, generation):
        self.joins += 1
        return bytes([self.joins])

    def assign(self, members):
        raise AssertionError("this member is a follower")

    def on_assignment(self, partitions, user_data, generation):
        self._record("on_assignment", partitions)

    def on_revoked(self, partitions):
        self._record("on_revoked", partitions)
        return {partition: OffsetAndMetadata(9, "m") for partition in partitions}

    def on_revoked_committed(self, error):
        self._record(f"committed {type(error).__name__ if error else 'well'}")

    def on_stuck(self):
        self._record("on_stuck")

    def on_doubt(self, in_doubt):
        self.doubts.append(in_doubt)

    def on_join_waits(self, waited_s):
        self.waits += 1

    def on_lost(self, partitions):
        self._record("on_lost", partitions)

    def on_assigned(self, added):
        self._record("on_assigned", added)


class Member:
    """A follower whose coordinator is a script."""

    def __init__(self, *, cooperative=True, mock=False, instance_id=None):
        self.calls = []
        self.listener = RecordingListener(self.calls)
        self.joins = deque()
        self.syncs = deque()
        self.commit_error = self.heartbeat_error = 0
        self.requests = []
        self.timeouts_ms = {}
        self.client = KafkaNetClient(bootstrap_servers="127.0.0.1:1", client_id="c")
        self.client.cluster.request_update = lambda: Future().success(None)
        # The connections and the event loop of kafka-python's client have no public names.
        self.manager, self.net = self.client._manager, self.client._net
        self.manager.send = self._send
        self.coordinator = StreamsCoordinator(
            self.client,
            SubscriptionState("none"),
            self.listener,
            InlineInbox(),
            MemberOptions(
                cooperative=cooperative,
                rules=ClusterRules(leader_answer_delay_ms=100 if mock else 0),
                revocation_commit_timeout_ms=500,
            ),
            group_id="g",
            group_instance_id=instance_id,
            retry_backoff_ms=1,
            enable_auto_commit=False,
            api_version=(4, 0),
        )
        self.coordinator.coordinator_id = "coordinator-1"
        self.coordinator.coordinator = lambda: self.coordinator.coordinator_id
        self.coordinator.set_subscription({"t"}, None)
        self.session = self.coordinator._session  # its clock and time-out, which a test would have to wait for

    def _send(self, request, node_id=None, request_timeout_ms=None):
        self.requests.append(request)
        self.timeouts_ms[type(request)] = request_timeout_ms
        answer = Future()
        match request:
            case JoinGroupRequest():
                self.calls.append(
                    ("JoinGroup", decode_subscription(dict(request.protocols)[PROTOCOL_NAME]).owned_partitions)
                )
                error, generation, member_id = self.joins.popleft()
                return answer.success(
                    JoinGroupResponse(
                        version=9, throttle_time_ms=0, error_code=error, generation_id=generation,
                        protocol_type="consumer", protocol_name=PROTOCOL_NAME, leader="somebody", skip_assignment=False,
                        member_id=member_id, members=[],
                    )
                )  # fmt: skip
            case SyncGroupRequest():
                error, assignment = self.syncs.popleft()
                return answer.success(
                    SyncGroupResponse(
                        version=5, throttle_time_ms=0, error_code=error, protocol_type="consumer",
                        protocol_name=PROTOCOL_NAME, assignment=assignment,
                    )
                )  # fmt: skip
            case OffsetCommitRequest():
                self.calls.append(("OffsetCommit", (request.generation_id_or_member_epoch,)))
                return answer.success(OffsetCommitResponse(version=8, throttle_time_ms=0, topics=[
                    ("t", [(partition.partition_index, self.commit_error) for partition in topic.partitions])
                    for topic in request.topics
                ]))  # fmt: skip
            case HeartbeatRequest():
                return answer.success(HeartbeatResponse(version=4, throttle_time_ms=0, error_code=self.heartbeat_error))
            case LeaveGroupRequest():
                self.calls.append(("LeaveGroup", ()))
                return answer.success(LeaveGroupResponse(version=5, throttle_time_ms=0, error_code=0, members=[]))
        raise AssertionError(f"not in the script: {request}")

    def run(self, step, *arguments):
        return self.net.run(step, *arguments)

    def poll(self, timeout_ms=2000):
        return self.run(self.coordinator.poll_async, timeout_ms)

    def will_join(self, generation, *partitions, member_id="m"):
        self.joins.append((0, generation, member_id))
        self.syncs.append((0, encode_assignment(Assignment(tuple(partitions), b"tasks"))))

    def joined(self, *partitions, member_id="m"):
        """Stable in generation 1 with these, and with no calls so far."""
        self.will_join(1, *partitions, member_id=member_id)
        assert self.poll() is True
        self.calls.clear()
        return self

    def heartbeat_answered(self, response, sent_at_s):
        """Do what an answer to a heartbeat causes that was sent at this time."""
        self.coordinator._handle_heartbeat_response(response, sent_at_s)  # a heartbeat is sent every few seconds

    def rejoin(self):
        self.coordinator.request_rejoin_because("because")
        return self.poll()
