"""kafka-python's errors in our words."""

from __future__ import annotations

import pytest
from kafka import errors as kafka_errors

from streams_py.adapters.kafka_python.failures import is_retriable, translated
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
        (kafka_errors.GroupAuthorizationFailedError("g"), "rights"),
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
