"""For every value decode(encode(x)) is x; all bytes give a value or a documented error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streams_protocol import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    Assignment,
    AssignmentInfo,
    DecodeError,
    HostInfo,
    ProcessId,
    SchemaError,
    Subscription,
    SubscriptionInfo,
    TaskAssignmentDecodeError,
    TaskId,
    TopicPartition,
    connect,
    decode_assignment,
    decode_assignment_info,
    decode_subscription,
    decode_subscription_info,
    encode_assignment,
    encode_assignment_info,
    encode_subscription,
    encode_subscription_info,
)

int8, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (7, 31, 63))
numbers = st.one_of(st.integers(0, 300), int32)
utf8 = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Two adjacent halves of a surrogate pair are one character in UTF-16, so draw at most one lone half.
java_text = st.one_of(utf8, st.just("\ud800"), st.just("a\0b"))
plain_tasks = st.tuples(numbers, numbers).map(lambda ids: TaskId(*ids))
named_tasks = st.tuples(numbers, numbers, st.one_of(st.none(), utf8)).map(lambda ids: TaskId(*ids))
java_named_tasks = st.tuples(numbers, numbers, st.one_of(st.none(), java_text)).map(lambda ids: TaskId(*ids))
offset_sums = st.one_of(st.just(LATEST_OFFSET), int64)


@st.composite
def subscription_infos(draw: st.DrawFn) -> SubscriptionInfo:
    version = draw(st.integers(1, 11))
    return SubscriptionInfo(
        ProcessId(draw(st.uuids())),
        version,
        draw(st.integers(11, 2**31 - 1)),
        draw(st.one_of(st.none(), utf8)),
        draw(st.dictionaries(named_tasks if version >= 10 else plain_tasks, offset_sums, max_size=12)),
        draw(int8),
        draw(int32),
        draw(st.dictionaries(utf8, utf8, max_size=5)),
    )


def as_version_carries(info: SubscriptionInfo) -> SubscriptionInfo:
    version = info.version
    old = {
        task: LATEST_OFFSET if total == LATEST_OFFSET else UNKNOWN_OFFSET_SUM
        for task, total in info.task_offset_sums.items()
    }
    return SubscriptionInfo(
        info.process_id,
        version,
        info.latest_supported_version if version >= 3 else -1,
        info.endpoint if version >= 2 else None,
        info.task_offset_sums if version >= 7 else old,
        info.unique_field if version >= 8 else 0,
        info.error_code if version >= 9 else 0,
        info.client_tags if version >= 11 else {},
    )


@given(subscription_infos())
def test_subscription_info_round_trips(info: SubscriptionInfo) -> None:
    data = encode_subscription_info(info)
    decoded = decode_subscription_info(data)
    assert decoded == as_version_carries(info)
    assert encode_subscription_info(decoded) == data


topics = st.one_of(st.sampled_from(["t", "orders", "app-store-changelog"]), java_text)
partitions = st.builds(TopicPartition, topics, numbers)
partition_sets = st.frozensets(partitions, max_size=8)
host_maps = st.dictionaries(st.builds(HostInfo, java_text, int32), partition_sets, max_size=4)


@st.composite
def assignment_infos(draw: st.DrawFn) -> AssignmentInfo:
    version = draw(st.integers(1, 11))
    tasks = java_named_tasks if version >= 10 else plain_tasks
    return AssignmentInfo(
        version,
        draw(int32),
        tuple(draw(st.lists(tasks, max_size=12))),
        draw(st.dictionaries(tasks, partition_sets, max_size=6)),
        draw(host_maps),
        draw(host_maps),
        draw(int32),
        draw(int64),
    )


@given(assignment_infos())
def test_assignment_info_round_trips(info: AssignmentInfo) -> None:
    version = info.version
    data = encode_assignment_info(info)
    decoded = decode_assignment_info(data)
    assert decoded == AssignmentInfo(
        version,
        info.commonly_supported_version if version >= 3 else -1,
        info.active_tasks,
        info.standby_tasks,
        info.partitions_by_host if version >= 2 else {},
        info.standby_partitions_by_host if version >= 6 else {},
        info.error_code if version >= 4 else 0,
    )
    assert version < 7 or decoded.next_rebalance_ms == info.next_rebalance_ms
    assert encode_assignment_info(decoded) == data


wire_partitions = st.lists(st.builds(TopicPartition, utf8, numbers), max_size=10).map(tuple)
user_data = st.one_of(st.none(), st.binary(max_size=20))
subscriptions = st.builds(
    Subscription,
    st.lists(utf8, max_size=4).map(tuple),
    user_data,
    wire_partitions,
    st.one_of(st.none(), st.integers(0, 2**31 - 1)),
    st.one_of(st.none(), utf8),
)


@given(subscriptions, st.integers(0, 3))
def test_subscription_round_trips(subscription: Subscription, version: int) -> None:
    data = encode_subscription(subscription, version)
    decoded = decode_subscription(data)
    assert decoded == Subscription(
        tuple(sorted(subscription.topics)),
        subscription.user_data,
        tuple(sorted(subscription.owned_partitions)) if version >= 1 else (),
        subscription.generation_id if version >= 2 else None,
        subscription.rack_id if version >= 3 else None,
    )
    assert encode_subscription(decoded, version) == data


@given(wire_partitions, user_data, st.integers(0, 3))
def test_assignment_round_trips(parts: tuple[TopicPartition, ...], data: bytes | None, version: int) -> None:
    assignment = Assignment(tuple(sorted(parts)), data)
    assert decode_assignment(encode_assignment(assignment, version)) == assignment


connect_tasks = st.builds(connect.TaskId, utf8, st.integers(0, 2**31 - 1))
ascending_tasks = st.frozensets(connect_tasks, max_size=5).map(lambda tasks: tuple(sorted(tasks)))
ascending_names = st.frozensets(utf8, max_size=4).map(lambda names: tuple(sorted(names)))
connect_assignments = st.builds(
    connect.Assignment,
    leader=utf8,
    leader_url=utf8,
    config_offset=int64,
    error=st.integers(0, 1),
    connectors=ascending_names,
    tasks=ascending_tasks,
    revoked_connectors=ascending_names,
    revoked_tasks=ascending_tasks,
    delay_ms=int32,
)
worker_states = st.builds(
    connect.WorkerState,
    utf8,
    int64,
    st.one_of(st.none(), connect_assignments),
    st.one_of(st.none(), st.frozensets(utf8, max_size=4)),
    st.one_of(st.none(), st.frozensets(connect_tasks, max_size=4)),
)


@given(worker_states)
def test_connect_worker_state_round_trips(state: connect.WorkerState) -> None:
    data = connect.encode_worker_state(state)
    assert connect.decode_worker_state(data) == state
    assert connect.encode_worker_state(connect.decode_worker_state(data)) == data


@given(connect_assignments, st.integers(0, 3))
def test_connect_assignment_round_trips(assignment: connect.Assignment, version: int) -> None:
    data = connect.encode_assignment(assignment, version)
    decoded = connect.decode_assignment(data)
    assert (decoded.connectors, decoded.tasks) == (assignment.connectors, assignment.tasks)
    assert connect.encode_assignment(decoded, version) == data


# -- any bytes -----------------------------------------------------------------------------------------------

encoded = {
    "SubscriptionInfo": subscription_infos().map(encode_subscription_info),
    "AssignmentInfo": assignment_infos().map(encode_assignment_info),
    "Subscription": st.builds(encode_subscription, subscriptions, st.integers(0, 3)),
    "Assignment": st.builds(encode_assignment, st.builds(Assignment, wire_partitions, user_data), st.integers(0, 3)),
    "worker state": worker_states.map(connect.encode_worker_state),
    "Connect assignment": st.builds(connect.encode_assignment, connect_assignments, st.integers(0, 3)),
}
decoders: dict[str, tuple[Callable[[bytes], object], type[DecodeError]]] = {
    "SubscriptionInfo": (decode_subscription_info, DecodeError),
    "AssignmentInfo": (decode_assignment_info, TaskAssignmentDecodeError),
    "Subscription": (decode_subscription, DecodeError),
    "Assignment": (decode_assignment, DecodeError),
    "worker state": (connect.decode_worker_state, SchemaError),
    "Connect assignment": (connect.decode_assignment, SchemaError),
}


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    data = bytearray(draw(encoded[name]))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)])))
        data[at : at + draw(st.sampled_from([0, 1, len(piece)]))] = piece
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@pytest.mark.parametrize("name", decoders)
@given(data=st.data())
def test_any_bytes_give_a_value_or_a_documented_error(name: str, data: st.DataObject) -> None:
    decode, documented = decoders[name]
    message = data.draw(st.one_of(st.binary(max_size=200), damaged(name)))
    refusal: DecodeError | None = None
    try:
        decode(message)
    except documented as error:
        refusal = error
    assert refusal is None or (refusal.remedy and 0 <= refusal.offset <= len(message))


@given(damaged("SubscriptionInfo"))
def test_what_was_read_can_be_written_and_read_again(message: bytes) -> None:
    try:
        info = decode_subscription_info(message)
        dict(info.client_tags)
    except DecodeError:
        assume(False)
    assume(not info.is_future)
    assert decode_subscription_info(encode_subscription_info(info)) == info
