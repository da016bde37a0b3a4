"""A group of a Kafka 4.3 coordinator whose load stopped early: older than its log, and without members' sessions.

It models the behaviour of ``GroupMetadataManager`` for classic groups with JoinGroup, SyncGroup, Heartbeat and
LeaveGroup. Its time advances with each request, and waiting members send requests regularly.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kafka import errors as kafka_errors
from kafka.future import Future
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from streams_py.adapters.kafka_python.classic.coordinator import PROTOCOL_NAME
from streams_py.ports import MemberAssignment
from tests.support.kafka_python.scripted_member import (
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

NOT_COORDINATOR = 16


@dataclass
class _Counted:
    metadata: bytes = b""
    over_at: float = float("inf")
    """Time at which the session expires without a heartbeat."""
    waiting: Any = None
    """The waiting JoinGroup or SyncGroup: (client, answer)."""
    assignment: bytes = b""

    def answer(self, response: Any) -> None:
        """Answer the waiting request, if any, on the network thread of its client."""
        if self.waiting:
            (client, answer), self.waiting = self.waiting, None
            # From the thread of another member.
            client._net.call_soon_threadsafe(lambda: None if answer.is_done else answer.success(response))


class HalfLoaded:
    """A group whose log is loaded only in part. It never describes its members.

    ``loaded`` and ``generation`` are the loaded part. ``log`` (generation, member ids) is the content of the log, which
    is loaded at the first write.
    """

    def __init__(
        self, *, loaded: list[str], generation: int, log: tuple[int, list[str]], session_s: float, rebalance_s: float
    ) -> None:
        self.members = {name: _Counted() for name in loaded}
        self.generation = generation
        self.phase = "stable"
        self.loads = 0
        self._is_behind = True
        self._leader = ""
        self.heartbeats: list[tuple[str, int]] = []
        self._log = log
        self._session_s, self._rebalance_s = session_s, rebalance_s
        self._rebalance_over_at = float("inf")
        self._given: dict[str, float] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def take(self, member: Any) -> None:
        """Be this member's coordinator from now on."""
        client, coordinator, manager = member.client, member.coordinator, member.manager
        asked: list[Any] = []

        def send(request: Any, node_id: Any = None, request_timeout_ms: Any = None) -> Any:
            with self._lock:
                answer = Future()
                asked.append(answer)
                self._pass_time()
                self._answer(request, client, answer)
                return answer

        def close(error: Any = None) -> None:
            for answer in asked:
                if not answer.is_done:
                    answer.failure(kafka_errors.Cancelled("closed"))

        manager.send = send
        # In place of a connection to the coordinator.
        manager._conns = {"coordinator-1": SimpleNamespace(transport=SimpleNamespace(_write_buffer=[]), close=close)}
        client.cluster.broker_metadata = lambda node_id: object()
        coordinator.coordinator_dead = lambda error: None
        coordinator.config["session_timeout_ms"] = round(1000 * self._session_s)
        member.session._timeout_s = self._session_s  # instead of waiting for seconds
        coordinator.heartbeat.config["heartbeat_interval_ms"] = round(1000 * self._session_s / 10)
        member.listener.assign = lambda members: dict.fromkeys(members, MemberAssignment((), b"tasks"))

    def _answer(self, request: Any, client: Any, answer: Any) -> None:
        match request:
            case DescribeGroupsRequest():
                answer.success(SimpleNamespace(groups=[SimpleNamespace(group_id="g", error_code=69, members=[])]))
            case JoinGroupRequest():
                self._join(request, client, answer)
            case SyncGroupRequest():
                self._sync(request, client, answer)
            case HeartbeatRequest():
                self.heartbeats.append((request.member_id, request.generation_id))
                error = self._problem(request.member_id, request.generation_id)
                if not error:
                    self.members[request.member_id].over_at = time.monotonic() + self._session_s
                    error = REBALANCE_IN_PROGRESS if self.phase == "preparing" else 0
                answer.success(HeartbeatResponse(version=4, throttle_time_ms=0, error_code=error))
            case LeaveGroupRequest():
                left = []
                for leaving in request.members:
                    known = self._drop(leaving.member_id)
                    left.append(LeaveGroupResponse.MemberResponse(
                        member_id=leaving.member_id, error_code=0 if known else UNKNOWN_MEMBER_ID
                    ))  # fmt: skip
                self._complete_if_all_have_joined()
                answer.success(LeaveGroupResponse(version=5, throttle_time_ms=0, error_code=0, members=left))
            case _:
                raise AssertionError(f"not in the model: {request}")

    def _sync(self, request: Any, client: Any, answer: Any) -> None:
        error = self._problem(request.member_id, request.generation_id)
        if not error and self.phase == "preparing":
            error = REBALANCE_IN_PROGRESS
        if error:
            answer.success(_sync_answer(error))
            return
        held = self.members[request.member_id]
        if self.phase == "completing":
            held.waiting = (client, answer)
            if request.member_id == self._leader:
                self._assign(dict(request.assignments))
        else:
            answer.success(_sync_answer(0, held.assignment))

    def _assign(self, assignments: dict[str, bytes]) -> None:
        """It is written to the log; which tells that more is in there than was read, if that is so."""
        is_behind, self._is_behind = self._is_behind, False
        for name, held in self.members.items():
            held.assignment = assignments.get(name, b"")
            held.over_at = time.monotonic() + self._session_s
            held.answer(_sync_answer(NOT_COORDINATOR) if is_behind else _sync_answer(0, held.assignment))
        self.phase = "stable"
        if is_behind:
            self.loads += 1
            self.generation, names = self._log
            self.members = {name: _Counted(over_at=time.monotonic() + self._session_s) for name in names}

    def _problem(self, member_id: str, generation: int) -> int:
        if member_id not in self.members:
            return UNKNOWN_MEMBER_ID
        return 0 if generation == self.generation else ILLEGAL_GENERATION

    def _join(self, request: Any, client: Any, answer: Any) -> None:
        name = request.member_id
        if not name:
            name = f"c-new-{next(self._numbers)}"
            self._given[name] = time.monotonic() + self._session_s
            answer.success(_join_answer(MEMBER_ID_REQUIRED, name))
            return
        if name not in self.members and name not in self._given:
            answer.success(_join_answer(UNKNOWN_MEMBER_ID, name))
            return
        self._given.pop(name, None)
        self._prepare()
        held = self.members.setdefault(name, _Counted())
        held.metadata, held.waiting = dict(request.protocols)[PROTOCOL_NAME], (client, answer)
        self._complete_if_all_have_joined()

    def _prepare(self) -> None:
        if self.phase != "preparing":
            for held in self.members.values():
                held.answer(_sync_answer(REBALANCE_IN_PROGRESS))
            self.phase, self._rebalance_over_at = "preparing", time.monotonic() + self._rebalance_s

    def _complete_if_all_have_joined(self) -> None:
        waited_for = [name for name, held in self.members.items() if not held.waiting]
        if self.phase == "preparing" and self.members and not waited_for and not self._given:
            self._complete()

    def _complete(self) -> None:
        self.members = {name: held for name, held in self.members.items() if held.waiting}
        self.generation += 1
        self.phase = "completing"
        leader = self._leader = next(iter(self.members))
        for name, held in self.members.items():
            listed = [(other, None, it.metadata) for other, it in self.members.items()] if name == leader else []
            members = [JoinGroupResponse.JoinGroupResponseMember(*each) for each in listed]
            response = _join_answer(0, name, self.generation, leader, members)
            held.over_at = time.monotonic() + self._session_s
            held.answer(response)

    def _drop(self, name: str) -> bool:
        if self._given.pop(name, None) is not None:
            return True
        held = self.members.pop(name, None)
        if held is not None:
            held.answer((_join_answer if self.phase == "preparing" else _sync_answer)(UNKNOWN_MEMBER_ID))
            self._prepare()
        return held is not None

    def _pass_time(self) -> None:
        now = time.monotonic()
        for name in [name for name, over_at in self._given.items() if now > over_at]:
            del self._given[name]
        for name in [name for name, held in self.members.items() if now > held.over_at and not held.waiting]:
            self._drop(name)
        somebody_waits = any(held.waiting for held in self.members.values())
        if self.phase == "preparing" and now > self._rebalance_over_at and somebody_waits:
            self._complete()
        self._complete_if_all_have_joined()


def _sync_answer(error: int, assignment: bytes = b"") -> Any:
    return SyncGroupResponse(
        version=5, throttle_time_ms=0, error_code=error, protocol_type="consumer", protocol_name=PROTOCOL_NAME,
        assignment=assignment,
    )  # fmt: skip


def _join_answer(error: int, name: str = "", generation: int = -1, leader: str = "", members: Any = ()) -> Any:
    return JoinGroupResponse(
        version=9, throttle_time_ms=0, error_code=error, generation_id=generation, protocol_type="consumer",
        protocol_name=PROTOCOL_NAME, leader=leader, skip_assignment=False, member_id=name, members=list(members),
    )  # fmt: skip
