"""Messages encoded by hand from the field tables, byte by byte, one per layout."""

from __future__ import annotations

import pytest

from streams_protocol import (
    LATEST_OFFSET,
    NO_PROCESS,
    UNKNOWN_OFFSET_SUM,
    Assignment,
    AssignmentInfo,
    ErrorCode,
    HostInfo,
    InvalidVersionDecodeError,
    ProcessId,
    Subscription,
    SubscriptionInfo,
    TaskId,
    TopicPartition,
    decode_assignment,
    decode_assignment_info,
    decode_subscription,
    decode_subscription_info,
    encode_assignment,
    encode_assignment_info,
    encode_subscription,
    encode_subscription_info,
    error_assignment,
)
from streams_protocol.connect import CONFIG_MISMATCH, WorkerState, decode_worker_state, encode_worker_state
from streams_protocol.connect import Assignment as Jobs
from streams_protocol.connect import TaskId as Task
from streams_protocol.connect import decode_assignment as decode_jobs
from streams_protocol.connect import encode_assignment as encode_jobs

PID_HEX = "00112233445566778899aabbccddeeff"
PID = ProcessId.parse(PID_HEX)
HOST = HostInfo("h", 80)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def v6(version: int) -> SubscriptionInfo:
    return SubscriptionInfo(PID, version, 11, "h:80", {TaskId(0, 0): LATEST_OFFSET})


SUBSCRIPTION_INFOS = {
    "E1 version 1 drops end point and unique field": (
        SubscriptionInfo(PID, 1, 11, "h:80", {TaskId(0, 1): LATEST_OFFSET, TaskId(1, 0): 77}, 9),
        SubscriptionInfo(PID, 1, -1, None, {TaskId(0, 1): LATEST_OFFSET, TaskId(1, 0): UNKNOWN_OFFSET_SUM}),
        f"00000001 {PID_HEX} 00000001 00000000 00000001 00000001 00000001 00000000",
    ),
    "E2 version 6": (v6(6), v6(6), f"00000006 0000000b {PID_HEX} 00000001 0000000000000000 00000000 00000004 683a3830"),
    "E2 version 3": (v6(3), v6(3), f"00000003 0000000b {PID_HEX} 00000001 0000000000000000 00000000 00000004 683a3830"),
    "E3 version 8": (
        SubscriptionInfo(PID, 8, 11, None, {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): 10}, 1),
        SubscriptionInfo(PID, 8, 11, None, {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): 10}, 1),
        (
            f"00000008 0000000b {PID_HEX} 00000000 00000001 00000000 00000002 "
            "00000000 fffffffffffffffe 00000001 000000000000000a 01"
        ),
    ),
    "E4 version 11": (
        SubscriptionInfo(PID, 11, 11, "h:80", {TaskId(1, 2): 300}, 1, 0, {"z": "a"}),
        SubscriptionInfo(PID, 11, 11, "h:80", {TaskId(1, 2): 300}, 1, 0, {"z": "a"}),
        (
            f"0000000b 0000000b {PID_HEX} 00000004 683a3830 00000001 00000001 00000002 000000000000012c ffff "
            "01 00000000 00000001 00000001 7a 00000001 61"
        ),
    ),
    "E5 version 10 with a named topology": (
        SubscriptionInfo(PID, 10, 11, None, {TaskId(0, 3, "T1"): LATEST_OFFSET}, -1, ErrorCode.SHUTDOWN_REQUESTED),
        SubscriptionInfo(PID, 10, 11, None, {TaskId(0, 3, "T1"): LATEST_OFFSET}, -1, ErrorCode.SHUTDOWN_REQUESTED),
        f"0000000a 0000000b {PID_HEX} 00000000 00000001 00000000 00000003 fffffffffffffffe 0002 5431 ff 00000004",
    ),
}


@pytest.mark.parametrize("example", SUBSCRIPTION_INFOS.values(), ids=SUBSCRIPTION_INFOS.keys())
def test_subscription_info_equals_hand_made_bytes(example: tuple[SubscriptionInfo, SubscriptionInfo, str]) -> None:
    given, read_back, data = example
    assert encode_subscription_info(given) == bytes.fromhex(data)
    assert decode_subscription_info(bytes.fromhex(data)) == read_back


def test_future_subscription_tells_nothing_but_its_versions() -> None:  # E6
    future = decode_subscription_info(bytes.fromhex("0000000c 0000000c deadbeef"))
    assert future == SubscriptionInfo(NO_PROCESS, 12, 12)
    assert future.is_future
    with pytest.raises(InvalidVersionDecodeError, match="version 12 with latest supported version 11"):
        decode_subscription_info(bytes.fromhex("0000000c 0000000b"))


STANDBY = {TaskId(0, 1): frozenset({T1})}
ASSIGNMENT_INFOS = {
    "E7 version 2": (
        AssignmentInfo(2, -1, (TaskId(0, 0), TaskId(0, 1)), {}, {HOST: frozenset({T0})}),
        (
            "00000002 00000002 0000000000000000 0000000000000001 00000000 "
            "00000001 0001 68 00000050 00000001 0001 74 00000000"
        ),
    ),
    "E8 version 5": (
        AssignmentInfo(5, 11, (TaskId(0, 0),), STANDBY, {HOST: frozenset({T0})}),
        (
            "00000005 0000000b 00000001 0000000000000000 00000001 0000000000000001 00000001 0001 74 00000001 "
            "00000001 00000000 0001 74 00000001 0001 68 00000050 00000001 00000000 00000000 00000000"
        ),
    ),
    "E9 version 11, immediate follow-up": (
        AssignmentInfo(11, 11, (TaskId(0, 0),), STANDBY, {HOST: frozenset({T0})}, {HOST: frozenset({T1})}, 0, 0),
        (
            "0000000b 0000000b 00000001 00000000 00000000 00000000 "
            "00000001 00000000 00000001 00000000 00000001 0001 74 00000001 00000001 00000000 0001 74 "
            "00000001 0001 68 00000050 00000001 00000000 00000000 "
            "00000001 0001 68 00000050 00000001 00000000 00000001 00000000 0000000000000000"
        ),
    ),
    "E10 error assignment": (
        error_assignment(ErrorCode.SHUTDOWN_REQUESTED),
        "0000000b 0000000b 00000000 00000000 00000000 00000000 00000000 00000004 7fffffffffffffff",
    ),
    "E11 version 10 with a named topology": (
        AssignmentInfo(10, 10, (TaskId(0, 3, "T1"),)),
        (
            "0000000a 0000000a 00000001 00000000 00000003 00000002 0054 0031 "
            "00000000 00000000 00000000 00000000 00000000 7fffffffffffffff"
        ),
    ),
}


@pytest.mark.parametrize("example", ASSIGNMENT_INFOS.values(), ids=ASSIGNMENT_INFOS.keys())
def test_assignment_info_equals_hand_made_bytes(example: tuple[AssignmentInfo, str]) -> None:
    info, data = example
    assert encode_assignment_info(info) == bytes.fromhex(data)
    decoded = decode_assignment_info(bytes.fromhex(data))
    assert decoded == info
    assert decoded.next_rebalance_ms == info.next_rebalance_ms


def test_version_5_drops_the_standby_host_map() -> None:
    info, data = ASSIGNMENT_INFOS["E8 version 5"]
    with_map = AssignmentInfo(5, 11, info.active_tasks, STANDBY, info.partitions_by_host, {HOST: frozenset({T1})})
    assert encode_assignment_info(with_map) == bytes.fromhex(data)


OWNING = Subscription(("t",), b"\1\2\3\4", (TopicPartition("t", 2), T0), 5, "r1")
SUBSCRIPTIONS = {
    "E12 version 3": (
        3,
        OWNING,
        "0003 00000001 0001 74 00000004 01020304 00000001 0001 74 00000002 00000000 00000002 00000005 0002 7231",
    ),
    "E12 version 1": (
        1,
        Subscription(("t",), b"\1\2\3\4", OWNING.owned_partitions),
        "0001 00000001 0001 74 00000004 01020304 00000001 0001 74 00000002 00000000 00000002",
    ),
    "E12 version 3, nothing set": (3, Subscription(("t",)), "0003 00000001 000174 ffffffff 00000000 ffffffff ffff"),
}


@pytest.mark.parametrize("example", SUBSCRIPTIONS.values(), ids=SUBSCRIPTIONS.keys())
def test_subscription_equals_hand_made_bytes(example: tuple[int, Subscription, str]) -> None:
    version, subscription, data = example
    assert encode_subscription(subscription, version) == bytes.fromhex(data)
    decoded = decode_subscription(bytes.fromhex(data))
    assert sorted(decoded.owned_partitions) == list(decoded.owned_partitions) == sorted(subscription.owned_partitions)
    assert encode_subscription(decoded, version) == bytes.fromhex(data)
    assert (decoded.topics, decoded.user_data) == (subscription.topics, subscription.user_data)
    assert (decoded.generation_id, decoded.rack_id) == (subscription.generation_id, subscription.rack_id)


def test_assignment_equals_hand_made_bytes() -> None:  # E13
    data = bytes.fromhex("0003 00000002 000174 00000001 00000000 000175 00000001 00000001 00000004 aabbccdd")
    assignment = Assignment((T0, TopicPartition("u", 1)), b"\xaa\xbb\xcc\xdd")
    assert encode_assignment(assignment) == data
    assert decode_assignment(data) == assignment


# -- Connect -------------------------------------------------------------------------------------------------

URL = "http://a:8083/"
URL_HEX = "000e 687474703a2f2f613a383038332f"
HEAD = f"0000 0002 6d31 {URL_HEX} 0000000000000009"  # no error, leader m1, offset 9


def jobs(version: int, offset: int, **fields: object) -> Jobs:
    return Jobs("m1", URL, offset, version=version, **fields)  # type: ignore[arg-type]  # test shorthand


WORKER_STATES = {
    "W1 eager": (0, WorkerState(URL, 4), f"0000 {URL_HEX} 0000000000000004"),
    "W3 nothing held": (1, WorkerState(URL, 4), f"0001 {URL_HEX} 0000000000000004 ffffffff"),
    "W5 connector held": (
        2,
        WorkerState(URL, 9, jobs(2, 9, connectors=("c1",))),
        f"0002 {URL_HEX} 0000000000000009 00000038 0002 {HEAD} 00000001 0002 6331 00000001 ffffffff 00000000 00000000",
    ),
    "W7 wildcard worker": (3, WorkerState(URL, 9), f"0003 {URL_HEX} 0000000000000009 ffffffff ffffffff ffffffff"),
    "W8 static worker": (
        3,
        WorkerState(URL, 9, None, frozenset({"c1"}), frozenset({Task("c2", 1), Task("c1", 2), Task("c1", 0)})),
        (
            f"0003 {URL_HEX} 0000000000000009 ffffffff 00000001 0002 6331 "
            "00000002 0002 6331 00000002 00000000 00000002 0002 6332 00000001 00000001"
        ),
    ),
    "W9 static worker with an empty list": (
        3,
        WorkerState(URL, 9, None, frozenset()),
        f"0003 {URL_HEX} 0000000000000009 ffffffff 00000000 ffffffff",
    ),
    "W10 static worker that holds its task": (
        3,
        WorkerState(URL, 9, jobs(3, 9, tasks=(Task("c2", 1),)), None, frozenset({Task("c2", 1)})),
        (
            f"0003 {URL_HEX} 0000000000000009 00000038 0003 {HEAD} 00000001 0002 6332 00000001 00000001 "
            "00000000 00000000 ffffffff 00000001 0002 6332 00000001 00000001"
        ),
    ),
}


@pytest.mark.parametrize("example", WORKER_STATES.values(), ids=WORKER_STATES.keys())
def test_connect_worker_state_equals_hand_made_bytes(example: tuple[int, WorkerState, str]) -> None:
    version, state, data = example
    assert encode_worker_state(state, version) == bytes.fromhex(data)
    assert decode_worker_state(bytes.fromhex(data)) == state


JOBS = {
    "W2 eager": (
        0,
        jobs(0, 4, connectors=("c1",), tasks=(Task("c1", 0), Task("c2", 1))),
        (
            f"0000 0000 0002 6d31 {URL_HEX} 0000000000000004 00000002 "
            "0002 6331 00000002 ffffffff 00000000 0002 6332 00000001 00000001"
        ),
    ),
    "W4 incremental": (
        1,
        jobs(1, 4, tasks=(Task("c1", 1),), revoked_connectors=("c2",), revoked_tasks=(Task("c2", 0),), delay_ms=300000),
        (
            f"0001 0000 0002 6d31 {URL_HEX} 0000000000000004 00000001 0002 6331 00000001 00000001 "
            "00000001 0002 6332 00000002 ffffffff 00000000 000493e0"
        ),
    ),
    "W6 config mismatch": (
        2,
        jobs(2, 9, error=CONFIG_MISMATCH),
        f"0002 0001 0002 6d31 {URL_HEX} 0000000000000009 00000000 00000000 00000000",
    ),
}


@pytest.mark.parametrize("example", JOBS.values(), ids=JOBS.keys())
def test_connect_assignment_equals_hand_made_bytes(example: tuple[int, Jobs, str]) -> None:
    version, assignment, data = example
    assert encode_jobs(assignment, version) == bytes.fromhex(data)
    assert decode_jobs(bytes.fromhex(data)) == assignment
    assert assignment.failed == (assignment.error == CONFIG_MISMATCH)
