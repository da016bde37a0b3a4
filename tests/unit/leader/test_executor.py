"""The executor that all leaders share: its answers, its notices, and the effects it rejects."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from streams_py.errors import AssignorError, BrokerUnavailableError, IllegalStateError, StreamsError
from streams_py.leader.effects import (
    CreateTopics,
    DescribeTopics,
    EnterStep,
    FailAssign,
    FetchCommittedOffsets,
    ListEndOffsets,
    Log,
    NotifyAssignor,
    Observe,
    ReportError,
    Wait,
)
from streams_py.leader.events import StepEntered, TopicsDescribed, WaitEnded
from streams_py.leader.executor import Executor
from streams_py.leader.observation import AssignStep, Decided, Fact
from streams_py.ports import AdminError, AdminErrorKind, TopicSpec
from tests.support.leader.kit import NOW_MS, FakeCluster, tps


class Away:
    """A cluster that fails every request, a clock that only waits advance, and a failing assignor."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.ms += duration_ms

    def _away(self, *arguments: object) -> object:
        raise BrokerUnavailableError("no broker answers")

    describe_topics = create_topics = list_offsets = committed_offsets = _away

    def ask(self, *arguments: object) -> object:
        raise AssignorError("no")

    def notify(self, notice: NotifyAssignor) -> None:
        raise AssignorError("no news, please")


class Listening(Executor):
    """Records the notices that it receives."""

    def __init__(self) -> None:
        away = Away()
        super().__init__(away, away, away, group="app")  # type: ignore[arg-type]  # all requests fail
        self.heard: list[object] = []

    def log(self, level: int, text: str) -> None:
        self.heard.append((level, text))

    def report(self, error: StreamsError) -> None:
        self.heard.append(str(error))

    def observe(self, fact: Fact) -> None:
        self.heard.append(fact)


GONE = AdminError(AdminErrorKind.TIMED_OUT, "no broker answers")


def test_request_that_fails_as_a_whole_fails_for_everything_that_was_asked() -> None:
    executor = Listening()
    assert executor.carry_out(DescribeTopics(("a", "b"))).topics == {"a": GONE, "b": GONE}  # type: ignore[union-attr]
    assert executor.carry_out(CreateTopics((TopicSpec("a", 1),))).results == {"a": GONE}  # type: ignore[union-attr]
    for effect in (ListEndOffsets(tps("a-0")), FetchCommittedOffsets(tps("a-0"))):
        answer = executor.carry_out(effect)
        assert (answer.error, answer.offsets) == (GONE, {})  # type: ignore[union-attr]


def test_answers_carry_the_time_at_which_they_were_there() -> None:
    executor = Listening()
    assert executor.carry_out(Wait(250)) == WaitEnded(NOW_MS + 250)
    assert executor.carry_out(EnterStep(AssignStep.ENCODE)) == StepEntered(NOW_MS + 250)


def test_notices_are_heard_and_have_no_answer() -> None:
    executor, decided = Listening(), Decided(None, {}, {})
    notices = [Log(30, "careful"), ReportError(AssignorError("broken")), Observe(decided)]
    assert [executor.carry_out(notice) for notice in notices] == [None] * 3
    executor.carry_out(EnterStep(AssignStep.DECODE))
    executor.carry_out(NotifyAssignor(None, None, None))  # type: ignore[arg-type]  # the fake does not read it
    assert executor.heard == [(30, "careful"), "broken", decided, AssignStep.DECODE, "no news, please"]


def test_end_of_a_step_is_nothing_to_carry_out() -> None:
    with pytest.raises(IllegalStateError, match="PublishAssignments and FailAssign end an assign step"):
        FakeCluster().executor.carry_out(FailAssign(StreamsError("end")))


@pytest.mark.parametrize("names", [("a",), ()])
def test_effect_takes_the_answer_of_its_type_only(names: Collection[str]) -> None:
    effect = DescribeTopics(tuple(names))
    answer = TopicsDescribed(NOW_MS, {})
    assert effect.answered_by(answer) is answer
    with pytest.raises(IllegalStateError, match="waits for TopicsDescribed, but got WaitEnded"):
        effect.answered_by(WaitEnded(NOW_MS))
