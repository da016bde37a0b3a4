from __future__ import annotations

import copy

import pytest

from streams_protocol import (
    LATEST_OFFSET,
    NO_PROCESS,
    OFFSET_UNKNOWN,
    UNKNOWN_OFFSET_SUM,
    InvalidLengthDecodeError,
    InvalidVersionDecodeError,
    InvalidVersionEncodeError,
    LimitExceededDecodeError,
    LimitExceededEncodeError,
    MissingUserDataDecodeError,
    ProcessId,
    RepeatedTagDecodeError,
    SubscriptionInfo,
    TaskAssignmentEncodeError,
    TaskAssignmentProtocolError,
    TaskId,
    TruncatedDecodeError,
    ValueEncodeError,
    decode_subscription_info,
    encode_subscription_info,
)
from streams_protocol.limits import TASKS_MAX, USER_DATA_BYTES_MAX

PID = ProcessId.parse("00112233-4455-6677-8899-aabbccddeeff")
SUMS = {TaskId(1, 0): 5, TaskId(0, 2): LATEST_OFFSET, TaskId(0, 10): OFFSET_UNKNOWN, TaskId(10, 0): 0}
FULL = SubscriptionInfo(PID, 11, 12, "höst:80", SUMS, -3, 4, {"zone": "a", "cluster": "b"})
VERSIONS = range(1, 12)


def at_version(version: int, **changes: object) -> SubscriptionInfo:
    fields: dict[str, object] = {"process_id": PID, "version": version, "task_offset_sums": SUMS, **changes}
    return SubscriptionInfo(**fields)  # type: ignore[arg-type]  # test shorthand


def test_accessors_split_tasks_by_their_sum() -> None:
    assert FULL.active_tasks == {TaskId(0, 2)}
    assert FULL.standby_tasks == {TaskId(1, 0), TaskId(0, 10), TaskId(10, 0)}
    assert not FULL.is_future


@pytest.mark.parametrize("version", range(1, 7))
def test_sums_become_running_or_unknown_when_version_is_below_7(version: int) -> None:  # W3
    decoded = decode_subscription_info(encode_subscription_info(at_version(version)))
    expected = {task: LATEST_OFFSET if total == LATEST_OFFSET else UNKNOWN_OFFSET_SUM for task, total in SUMS.items()}
    assert decoded.task_offset_sums == expected
    assert decoded.active_tasks == FULL.active_tasks
    assert decoded.standby_tasks == FULL.standby_tasks


def test_versions_3_to_6_differ_in_the_version_only() -> None:  # W4
    encoded = [encode_subscription_info(at_version(version, endpoint="h:1")) for version in range(3, 7)]
    assert len({data[4:] for data in encoded}) == 1
    assert len({data[:4] for data in encoded}) == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_every_prefix_is_refused_and_every_tail_ignored(version: int) -> None:  # W5
    info = at_version(version, endpoint="h:80", client_tags={"a": "b"})
    data = encode_subscription_info(info)
    for size in range(len(data)):
        with pytest.raises((TruncatedDecodeError, InvalidLengthDecodeError)) as refusal:
            decode_subscription_info(data[:size])
        assert 0 <= refusal.value.offset <= size
    assert decode_subscription_info(data + b"\1\2\3") == decode_subscription_info(data)


def test_future_member_is_accepted_only_with_a_supported_version_not_below() -> None:  # W6
    assert decode_subscription_info(bytes.fromhex("0000000c0000000c")) == SubscriptionInfo(NO_PROCESS, 12, 12)
    with pytest.raises(InvalidVersionDecodeError):
        decode_subscription_info(bytes.fromhex("0000000c0000000b"))
    with pytest.raises(TruncatedDecodeError):
        decode_subscription_info(bytes.fromhex("0000000c"))


@pytest.mark.parametrize("version", range(1, 10))
def test_named_topology_is_a_task_assignment_error_before_version_10(version: int) -> None:  # W10
    with pytest.raises(TaskAssignmentEncodeError, match="T1__0_3") as refusal:
        encode_subscription_info(at_version(version, task_offset_sums={TaskId(0, 3, "T1"): 5, TaskId(0, 0): 1}))
    assert isinstance(refusal.value, TaskAssignmentProtocolError)


@pytest.mark.parametrize("value", [-128, -1, 0, 1, 127])
def test_unique_field_round_trips_when_it_is_a_signed_byte(value: int) -> None:  # W11
    assert decode_subscription_info(encode_subscription_info(at_version(8, unique_field=value))).unique_field == value


def test_unique_field_wraps_after_127() -> None:  # W11
    assert encode_subscription_info(at_version(8, unique_field=128))[-1] == 0x80
    assert encode_subscription_info(at_version(8, unique_field=-129))[-1] == 0x7F


@pytest.mark.parametrize("field_offset", [24, 28])
def test_huge_array_length_is_refused_without_allocating(field_offset: int) -> None:  # W13
    data = bytearray(encode_subscription_info(at_version(6, task_offset_sums={})))
    data[field_offset : field_offset + 4] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(InvalidLengthDecodeError, match="2147483647"):
        decode_subscription_info(bytes(data))


def test_named_and_unnamed_tasks_round_trip_together() -> None:
    sums = {TaskId(0, 3, "T\U0001f600"): 5, TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1, "A"): -1}
    decoded = decode_subscription_info(encode_subscription_info(at_version(11, task_offset_sums=sums)))
    assert decoded.task_offset_sums == sums


def test_task_in_both_old_sets_reads_as_running_and_as_standby() -> None:
    data = encode_subscription_info(at_version(6, running_and_standby=frozenset({TaskId(1, 0)})))
    decoded = decode_subscription_info(data)
    assert TaskId(1, 0) in decoded.active_tasks
    assert TaskId(1, 0) in decoded.standby_tasks
    assert decoded.task_offset_sums[TaskId(1, 0)] == UNKNOWN_OFFSET_SUM
    assert encode_subscription_info(decoded) == data


@pytest.mark.parametrize("version", VERSIONS)
def test_equal_values_are_equal_bytes_whatever_their_order(version: int) -> None:
    tags = dict(FULL.client_tags)
    one = at_version(version, client_tags=tags)
    backwards = dict(reversed(list(tags.items())))
    other = at_version(version, task_offset_sums=dict(reversed(list(SUMS.items()))), client_tags=backwards)
    assert one == other
    assert encode_subscription_info(one) == encode_subscription_info(other)


def test_empty_end_point_equals_none() -> None:
    assert SubscriptionInfo(PID, endpoint="").endpoint is None


def test_repeated_tag_is_refused_when_the_tags_are_read_not_before() -> None:
    one_tag = encode_subscription_info(SubscriptionInfo(PID, client_tags={"z": "a"}))
    two_tags = one_tag[:-14] + (2).to_bytes(4, "big") + 2 * one_tag[-10:]
    decoded = decode_subscription_info(two_tags)
    assert decoded.process_id == PID
    for look in (len, dict, list, lambda tags: tags["z"], lambda tags: tags == {"z": "a"}):
        with pytest.raises(RepeatedTagDecodeError, match="'z' occurs twice"):
            look(decoded.client_tags)
    with pytest.raises(RepeatedTagDecodeError):
        encode_subscription_info(decoded)


def test_malformed_utf8_is_replaced_not_refused() -> None:
    data = encode_subscription_info(at_version(6, endpoint="h:80", task_offset_sums={}))
    assert decode_subscription_info(data[:-4] + b"h\xff80").endpoint == "h�80"


def test_missing_user_data_is_an_error_of_its_own() -> None:
    with pytest.raises(MissingUserDataDecodeError, match="Kafka Streams members"):
        decode_subscription_info(None)


@pytest.mark.parametrize(
    ("version", "latest"), [(0, 11), (-1, 11), (12, 11), (12, 12), (11, 10), (3, -1), (11, -1), (4, 0)]
)
def test_impossible_version_cannot_be_written(version: int, latest: int) -> None:
    with pytest.raises(InvalidVersionEncodeError, match="use a version from 1 to 11"):
        encode_subscription_info(SubscriptionInfo(PID, version, latest))


@pytest.mark.parametrize(
    "changes",
    [
        {"task_offset_sums": {TaskId(0, 0): 2**63}},
        {"task_offset_sums": {TaskId(0, 2**31): 0}},
        {"task_offset_sums": {TaskId(-(2**31) - 1, 0): 0}},
        {"task_offset_sums": {TaskId(0, 2**31, "T"): 0}},
        {"task_offset_sums": {TaskId(0, 0, "T" * 32768): 0}},
        {"task_offset_sums": {TaskId(0, 0, "T\ud800"): 0}},
        {"error_code": 2**31},
        {"latest_supported_version": 2**31},
        {"endpoint": "\udfff"},
        {"client_tags": {"\ud800": ""}},
    ],
    ids=str,
)
def test_value_that_does_not_fit_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueEncodeError, match="shorten or correct"):
        encode_subscription_info(at_version(11, **changes))


def test_task_limit_holds_in_both_directions() -> None:
    at_limit = encode_subscription_info(at_version(11, task_offset_sums=dict.fromkeys(map(task, range(TASKS_MAX)), 1)))
    assert len(decode_subscription_info(at_limit).task_offset_sums) == TASKS_MAX
    for version in (1, 7, 11):
        one_more = at_version(version, task_offset_sums=dict.fromkeys(map(task, range(TASKS_MAX + 1)), 1))
        with pytest.raises(LimitExceededEncodeError, match="100001 is more than the limit of 100000"):
            encode_subscription_info(one_more)
    count_at = 28
    data = bytearray(at_limit + at_limit[32:50])
    data[count_at : count_at + 4] = (TASKS_MAX + 1).to_bytes(4, "big")
    with pytest.raises(LimitExceededDecodeError, match="100001 is more than the limit of 100000"):
        decode_subscription_info(bytes(data))


def test_task_limit_counts_all_groups_together() -> None:
    groups = [task(number) for number in range(TASKS_MAX)]
    data = bytearray(encode_subscription_info(at_version(7, task_offset_sums=dict.fromkeys(groups, 1))))
    count = int.from_bytes(data[28:32], "big")
    data[28:32] = (count + 1).to_bytes(4, "big")
    data += bytes.fromhex("7fffffff 00000001 00000000 0000000000000001")
    with pytest.raises(LimitExceededDecodeError, match="number of tasks"):
        decode_subscription_info(bytes(data))


def task(number: int) -> TaskId:
    return TaskId(number // 1000, number % 1000)


def test_message_limit_holds_in_both_directions() -> None:
    overhead = len(encode_subscription_info(at_version(11, task_offset_sums={})))
    at_limit = encode_subscription_info(
        at_version(11, task_offset_sums={}, endpoint="h" * (USER_DATA_BYTES_MAX - overhead))
    )
    assert len(at_limit) == USER_DATA_BYTES_MAX
    assert decode_subscription_info(at_limit).version == 11
    with pytest.raises(LimitExceededDecodeError, match="8388609"):
        decode_subscription_info(at_limit + b"\0")
    for excess in (1, overhead + 1):
        endpoint = "h" * (USER_DATA_BYTES_MAX - overhead + excess)
        with pytest.raises(LimitExceededEncodeError):
            encode_subscription_info(at_version(11, task_offset_sums={}, endpoint=endpoint))


def test_errors_name_field_byte_and_remedy_and_can_be_copied() -> None:
    with pytest.raises(TruncatedDecodeError) as theirs:
        decode_subscription_info(bytes.fromhex("0000000b 0000"))
    assert str(theirs.value) == (
        "SubscriptionInfo: latestSupportedVersion needs 4 bytes, 2 are left (at byte 4); "
        "the sender wrote another layout, or the bytes were cut on the way; check its version"
    )
    twin = copy.copy(theirs.value)
    assert (type(twin), str(twin), twin.offset) == (TruncatedDecodeError, str(theirs.value), 4)
    with pytest.raises(InvalidVersionEncodeError) as ours:
        encode_subscription_info(SubscriptionInfo(PID, 0))
    assert str(copy.copy(ours.value)) == str(ours.value)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_like_object_is_read(kind: type) -> None:
    assert decode_subscription_info(kind(encode_subscription_info(FULL))) == FULL
