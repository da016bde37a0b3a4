"""kafka-python's errors in our words."""

from __future__ import annotations

import pytest
from kafka import errors as kafka_errors

from streams_py.adapters.kafka_python.failures import is_retriable, translated, with_retries
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError, TaskMigratedError, TopologyError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (kafka_errors.CommitFailedError(kafka_errors.UnknownMemberIdError()), TaskMigratedError),
        (kafka_errors.CommitFailedError(kafka_errors.IllegalGenerationError()), TaskMigratedError),
        (kafka_errors.CommitFailedError("kicked out"), TaskMigratedError),
        (kafka_errors.UnknownMemberIdError(), TaskMigratedError),
        (kafka_errors.CommitFailedError(kafka_errors.RebalanceInProgressError()), BrokerUnavailableError),
        (kafka_errors.RebalanceInProgressError(), BrokerUnavailableError),
        (kafka_errors.KafkaTimeoutError(), BrokerUnavailableError),
        (kafka_errors.NotCoordinatorError(), BrokerUnavailableError),
        (kafka_errors.InvalidSessionTimeoutError(), ConfigError),
    ],
)
def test_error_becomes_the_kind_that_says_who_must_act(error, kind):
    made = translated(error, "commit")
    assert type(made) is kind
    assert made.__cause__ is error
    assert str(made).startswith("commit: ")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (kafka_errors.FencedInstanceIdError(), "group.instance.id"),
        (kafka_errors.GroupAuthorizationFailedError("g"), "no right READ on group g"),
        (kafka_errors.SaslAuthenticationFailedError(), "login"),
        (kafka_errors.InconsistentGroupProtocolError(), "application.id"),
        (kafka_errors.OffsetMetadataTooLargeError(), "OffsetMetadataTooLarge"),
    ],
)
def test_fatal_error_says_what_to_do(error, advice):
    made = translated(error, "join")
    assert type(made) is StreamsError
    assert advice in str(made)
    assert not is_retriable(made)


def test_error_of_somebody_else_stays_as_it_is():
    error = TopologyError("counts differ")
    assert translated(error, "join") is error


def test_answer_is_asked_for_again_while_the_error_may_pass() -> None:
    errors = [kafka_errors.CoordinatorLoadInProgressError(), kafka_errors.NotCoordinatorError()]

    def ask() -> str:
        if errors:
            raise errors.pop(0)
        return "answer"

    assert with_retries(ask, _not_asked_for, timeout_ms=60_000, pause_s=0.0) == "answer"


@pytest.mark.parametrize(
    ("error", "timeout_ms"),
    [(kafka_errors.GroupAuthorizationFailedError(), 60_000), (kafka_errors.NotCoordinatorError(), 0)],
)
def test_answer_is_asked_for_once_when_the_error_stays_or_time_is_over(
    error: kafka_errors.KafkaError, timeout_ms: int
) -> None:
    asked = []

    def ask() -> None:
        assert not asked
        asked.append(1)
        raise error

    with pytest.raises(StreamsError, match="it failed") as raised:
        with_retries(ask, lambda _: StreamsError("it failed"), timeout_ms=timeout_ms, pause_s=0.01)
    assert raised.value.__cause__ is error


def _not_asked_for(error: kafka_errors.KafkaError) -> BaseException:
    raise AssertionError(error)
