"""The processes of the group, as its coordinator reports them."""

from __future__ import annotations

from typing import Any

import pytest

from streams_protocol import Subscription, SubscriptionInfo, encode_subscription, encode_subscription_info
from streams_protocol.types import ProcessId
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports.described_groups import DescribedGroup, DescribedMember
from streams_py.runtime.group.classic.group_processes import GroupProcesses, processes_of

PROCESSES = [ProcessId.random_process_id() for _ in range(2)]
SENT = [encode_subscription(Subscription(("in",), encode_subscription_info(SubscriptionInfo(of)))) for of in PROCESSES]


def group(*subscriptions: bytes, state: str = "Stable") -> DescribedGroup:
    members = tuple(DescribedMember("m", None, "c", "host", sent, b"") for sent in subscriptions)
    return DescribedGroup("app", state, "consumer", "stream", members)


def test_processes_of_all_members_are_known_by_their_ids() -> None:
    assert processes_of(group(*SENT, SENT[0])) == {str(process) for process in PROCESSES}


@pytest.mark.parametrize(
    "unclear",
    [group(*SENT, state="PreparingRebalance"), group(SENT[0], b"garbage"), group(SENT[0], b"")],
    ids=["rebalancing", "garbage", "nothing"],
)
def test_nobody_is_taken_for_dead_while_not_all_members_are_known(unclear: DescribedGroup) -> None:
    assert processes_of(unclear) is None


class FakeAdmin:
    closed = False

    def __init__(self, answer: DescribedGroup | StreamsError) -> None:
        self.answer = answer

    def describe_group(self, name: str) -> DescribedGroup:
        assert name == "app"
        if isinstance(self.answer, StreamsError):
            raise self.answer
        return self.answer

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("error", [BrokerUnavailableError("away"), StreamsError("not allowed")])
def test_nobody_is_taken_for_dead_when_there_is_no_answer(error: StreamsError) -> None:
    admin: Any = FakeAdmin(error)
    processes = GroupProcesses(lambda: admin, "app")
    assert processes() is None
    admin.answer = group(SENT[1])
    assert processes() == {str(PROCESSES[1])}
    processes.close()
    assert admin.closed
