from __future__ import annotations

import tracemalloc

import pytest

from streams_protocol import (
    NO_FOLLOW_UP,
    AssignmentInfo,
    ErrorCode,
    HostInfo,
    InvalidVersionEncodeError,
    LimitExceededDecodeError,
    LimitExceededEncodeError,
    NotAllowedDecodeError,
    TaskAssignmentDecodeError,
    TaskAssignmentEncodeError,
    TaskAssignmentProtocolError,
    TaskId,
    TopicPartition,
    decode_assignment_info,
    encode_assignment_info,
    error_assignment,
    pair,
    partitions_by_task,
)
from streams_protocol.limits import HOSTS_MAX, PARTITIONS_MAX, TASKS_MAX

A, B, C = (TopicPartition(topic, 0) for topic in "abc")
HOST, OTHER = HostInfo("h\0ö\U0001f600", 80), HostInfo("i", -1)
NONE: frozenset[TopicPartition] = frozenset()
VERSIONS = range(1, 12)


def full(version: int) -> AssignmentInfo:
    return AssignmentInfo(
        version,
        11,
        (TaskId(1, 0), TaskId(0, 1), TaskId(1, 0)),
        {TaskId(0, 3): frozenset({A, TopicPartition("a", -1)}), TaskId(0, 2): NONE},
        {OTHER: frozenset({C}), HOST: frozenset({B, A})},
        {HOST: frozenset({C, TopicPartition("d", 2**31 - 1)}), OTHER: NONE},
        ErrorCode.ASSIGNMENT_ERROR,
        1234,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_round_trip_loses_what_the_version_lacks(version: int) -> None:  # W2
    info = full(version)
    decoded = decode_assignment_info(encode_assignment_info(info))
    assert decoded.version == version
    assert decoded.commonly_supported_version == (11 if version >= 3 else -1)
    assert decoded.active_tasks == info.active_tasks
    assert decoded.standby_tasks == info.standby_tasks
    assert decoded.partitions_by_host == (info.partitions_by_host if version >= 2 else {})
    assert decoded.standby_partitions_by_host == (info.standby_partitions_by_host if version >= 6 else {})
    assert decoded.error_code == (3 if version >= 4 else 0)
    assert decoded.next_rebalance_ms == (1234 if version >= 7 else NO_FOLLOW_UP)
    assert encode_assignment_info(decoded) == encode_assignment_info(info)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_prefix_is_refused_and_every_tail_ignored(version: int) -> None:  # W5
    data = encode_assignment_info(full(version))
    for size in range(len(data)):
        with pytest.raises(TaskAssignmentDecodeError) as refusal:
            decode_assignment_info(data[:size])
        assert 0 <= refusal.value.offset <= size
    assert decode_assignment_info(data + b"\1") == decode_assignment_info(data)


@pytest.mark.parametrize("version", [-1, 0, 12, 2**31 - 1])
def test_unknown_version_is_a_task_assignment_error(version: int) -> None:  # W7
    data = version.to_bytes(4, "big", signed=True) + bytes(100)
    with pytest.raises(TaskAssignmentProtocolError, match=f"version {version} cannot be read.* 11"):
        decode_assignment_info(data)
    with pytest.raises(InvalidVersionEncodeError):
        AssignmentInfo(version)


DICTIONARY = "0000000b 0000000b 00000000 00000000 00000002 {} 00000001 0001 68 00000050 00000002 {} 00000000 00000000"
TAIL = "7fffffffffffffff"


@pytest.mark.parametrize(
    ("entries", "members"),
    [
        ("00000000 0001 61 00000001 0001 62", "00000000 00000000 00000001 00000000"),
        ("00000001 0001 62 00000000 0001 61", "00000000 00000000 00000001 00000000"),
        ("00000007 0001 62 fffffffe 0001 61", "00000007 00000000 fffffffe 00000000"),
    ],
    ids=["ascending", "other order", "other numbers"],
)
def test_dictionary_is_read_by_index_not_by_position(entries: str, members: str) -> None:  # W8
    decoded = decode_assignment_info(bytes.fromhex(DICTIONARY.format(entries, members) + TAIL))
    assert decoded.partitions_by_host == {HostInfo("h", 80): {A, B}}


def test_topic_index_outside_the_dictionary_is_refused() -> None:
    data = DICTIONARY.format("00000000 0001 61 00000001 0001 62", "00000000 00000000 00000009 00000000") + TAIL
    with pytest.raises(TaskAssignmentDecodeError, match="topic index 9") as refusal:
        decode_assignment_info(bytes.fromhex(data))
    assert isinstance(refusal.value.__cause__, NotAllowedDecodeError)


def test_unsorted_partitions_pair_with_their_tasks() -> None:  # W9
    tasks = (TaskId(0, 0), TaskId(1, 0), TaskId(0, 0))
    assert pair([C, A, B], tasks) == ((A, TaskId(0, 0)), (B, TaskId(1, 0)), (C, TaskId(0, 0)))
    assert partitions_by_task([C, A, B], tasks) == {TaskId(0, 0): {A, C}, TaskId(1, 0): {B}}


@pytest.mark.parametrize("partitions", [[A], [A, B, C]])
def test_lists_of_different_length_are_a_task_assignment_error(partitions: list[TopicPartition]) -> None:
    with pytest.raises(TaskAssignmentProtocolError, match=f"2 active tasks for {len(partitions)} assigned"):
        pair(partitions, (TaskId(0, 0), TaskId(0, 1)))


@pytest.mark.parametrize("version", range(1, 10))
def test_named_topology_is_refused_before_version_10(version: int) -> None:  # W10
    named = TaskId(0, 3, "T1")
    for info in (AssignmentInfo(version, active_tasks=(named,)), AssignmentInfo(version, standby_tasks={named: NONE})):
        with pytest.raises(TaskAssignmentEncodeError, match="T1__0_3"):
            encode_assignment_info(info)


@pytest.mark.parametrize("version", [10, 11])
def test_named_and_unnamed_tasks_round_trip_together(version: int) -> None:
    tasks = (TaskId(0, 3, "T\U0001f600"), TaskId(0, 0), TaskId(2, 1, "A"))
    info = AssignmentInfo(version, active_tasks=tasks, standby_tasks={tasks[0]: NONE})
    assert decode_assignment_info(encode_assignment_info(info)) == info


@pytest.mark.parametrize("offset", [8, 12])
def test_huge_count_is_refused_without_allocating(offset: int) -> None:  # W13
    data = bytearray(encode_assignment_info(AssignmentInfo()))
    data[offset : offset + 4] = (2**31 - 1).to_bytes(4, "big")
    tracemalloc.start()
    with pytest.raises(TaskAssignmentDecodeError):
        decode_assignment_info(bytes(data))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_characters_outside_the_bmp_round_trip_in_a_host() -> None:  # W14
    info = AssignmentInfo(2, -1, partitions_by_host={HostInfo("\U0001f600", 1): NONE})
    data = encode_assignment_info(info)
    assert bytes.fromhex("0006 eda0bd edb880") in data
    assert decode_assignment_info(data) == info


def test_negative_topology_name_length_is_refused() -> None:
    data = bytes.fromhex("0000000a 0000000a 00000001 00000000 00000003 ffffffff") + bytes(36)
    with pytest.raises(TaskAssignmentDecodeError, match="is negative") as refusal:
        decode_assignment_info(data)
    assert isinstance(refusal.value.__cause__, NotAllowedDecodeError)


def test_follow_up_time_is_not_part_of_equality() -> None:
    assert AssignmentInfo(next_rebalance_ms=1) == AssignmentInfo(next_rebalance_ms=2)
    assert AssignmentInfo(error_code=1) != AssignmentInfo(error_code=2)


def test_error_assignment_is_of_the_newest_version_and_empty() -> None:
    info = decode_assignment_info(encode_assignment_info(error_assignment(ErrorCode.ASSIGNMENT_ERROR)))
    assert info == AssignmentInfo(11, 11, error_code=3)


def test_equal_values_are_equal_bytes_whatever_their_order() -> None:
    info = full(11)
    other = AssignmentInfo(
        11,
        11,
        info.active_tasks,
        dict(reversed(list(info.standby_tasks.items()))),
        dict(reversed(list(info.partitions_by_host.items()))),
        dict(reversed(list(info.standby_partitions_by_host.items()))),
        info.error_code,
        info.next_rebalance_ms,
    )
    assert encode_assignment_info(info) == encode_assignment_info(other)


@pytest.mark.parametrize(
    "info",
    [
        AssignmentInfo(error_code=2**31),
        AssignmentInfo(next_rebalance_ms=2**63),
        AssignmentInfo(active_tasks=(TaskId(0, 2**31),)),
        AssignmentInfo(standby_tasks={TaskId(2**31, 0): NONE}),
        AssignmentInfo(partitions_by_host={HostInfo("h" * 65536, 1): NONE}),
        AssignmentInfo(partitions_by_host={HostInfo("h", 1): frozenset({TopicPartition("t", 2**31)})}),
        AssignmentInfo(partitions_by_host={HostInfo("ö" * 32768, 1): NONE}),
    ],
    ids=["error code", "follow-up", "partition", "subtopology", "host", "host partition", "host in bytes"],
)
def test_value_that_does_not_fit_is_a_task_assignment_error(info: AssignmentInfo) -> None:
    with pytest.raises(TaskAssignmentEncodeError) as refusal:
        encode_assignment_info(info)
    assert refusal.value.__cause__ is not None


def test_longest_host_fits() -> None:
    info = AssignmentInfo(partitions_by_host={HostInfo("h" * 65535, 1): NONE})
    assert decode_assignment_info(encode_assignment_info(info)) == info


def numbered(count: int) -> list[TaskId]:
    return [TaskId(number // 1000, number % 1000) for number in range(count)]


HEAD_BYTES = 8  # the two versions


@pytest.mark.parametrize(
    ("limit", "count_at", "row"),
    [
        (PARTITIONS_MAX, HEAD_BYTES, bytes(12)),
        (TASKS_MAX, HEAD_BYTES + 4, bytes(16)),
        (HOSTS_MAX, HEAD_BYTES + 12, bytes(10)),
    ],
    ids=["active tasks", "standby tasks", "hosts"],
)
def test_limit_is_reached_but_not_passed_when_decoding(limit: int, count_at: int, row: bytes) -> None:
    empty = encode_assignment_info(AssignmentInfo())

    def rows(count: int) -> bytes:
        return empty[:count_at] + count.to_bytes(4, "big") + row * count + empty[count_at + 4 :]

    decode_assignment_info(rows(limit))
    with pytest.raises(TaskAssignmentDecodeError, match=f"{limit + 1} is more than the limit of {limit}") as refusal:
        decode_assignment_info(rows(limit + 1))
    assert isinstance(refusal.value.__cause__, LimitExceededDecodeError)


@pytest.mark.parametrize(
    "info",
    [
        AssignmentInfo(active_tasks=(TaskId(0, 0),) * (PARTITIONS_MAX + 1)),
        AssignmentInfo(standby_tasks=dict.fromkeys(numbered(TASKS_MAX + 1), NONE)),
        AssignmentInfo(partitions_by_host={HostInfo("h", port): NONE for port in range(HOSTS_MAX + 1)}),
        AssignmentInfo(3, partitions_by_host={HostInfo("h", port): NONE for port in range(HOSTS_MAX + 1)}),
    ],
    ids=["active tasks", "standby tasks", "hosts", "hosts without dictionary"],
)
def test_limit_is_not_passed_when_encoding(info: AssignmentInfo) -> None:
    with pytest.raises(TaskAssignmentEncodeError, match="is more than the limit") as refusal:
        encode_assignment_info(info)
    assert isinstance(refusal.value.__cause__, LimitExceededEncodeError)


@pytest.mark.parametrize(
    "mutf", ["0001 80", "0001 f0", "0001 c3", "0002 e282", "0002 c341", "0003 e28241"], ids=lambda text: text[5:]
)
def test_malformed_host_is_a_task_assignment_error(mutf: str) -> None:
    data = bytes.fromhex(f"00000002 00000000 00000000 00000001 {mutf} 00000050 00000000")
    with pytest.raises(TaskAssignmentDecodeError, match="host is not modified UTF-8"):
        decode_assignment_info(data)


@pytest.mark.parametrize(
    ("mutf", "host"),
    [("0001 00", "\0"), ("0002 c080", "\0"), ("0002 c181", "A"), ("0003 eda0bd", "\ud83d"), ("0002 c3a9", "é")],
)
def test_host_is_read_as_leniently_as_java_does(mutf: str, host: str) -> None:
    data = bytes.fromhex(f"00000002 00000000 00000000 00000001 {mutf} 00000050 00000000")
    assert decode_assignment_info(data).partitions_by_host == {HostInfo(host, 80): set()}
