"""Translate kafka-python's errors to :mod:`streams_py.errors`, so that no other package depends on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from kafka import errors as kafka_errors

from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError, TaskMigratedError
from streams_py.ports.rights import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, missing_right

T = TypeVar("T")


def is_retriable(error: BaseException) -> bool:
    """Whether a later retry may succeed, for errors of kafka-python and of this library."""
    return bool(getattr(error, "retriable", False))


def with_retries(
    ask: Callable[[], T], failed: Callable[[kafka_errors.KafkaError], BaseException], *, timeout_ms: int, pause_s: float
) -> T:
    """Call ``ask`` until it succeeds, while errors are retriable (a coordinator loads or moves) and time is left.

    Raises:
        BaseException: The result of ``failed`` for the last error.
    """
    until = time.monotonic() + timeout_ms / 1000
    while True:
        try:
            return ask()
        except kafka_errors.KafkaError as error:
            if not is_retriable(error) or time.monotonic() + pause_s > until:
                raise failed(error) from error
        time.sleep(pause_s)


def translated(error: BaseException, doing: str, *, group: str = "", right: str = "READ") -> BaseException:
    """Return the error to raise instead of ``error``. Errors that are not kafka-python's are returned unchanged.

    Args:
        error: The error.
        doing: What failed, for the beginning of the message.
        group: The group of the request.
        right: The operation on groups and topics that the request requires.
    """
    if not isinstance(error, kafka_errors.KafkaError):
        return error
    result = _streams_error(error, doing, group, right)
    result.__cause__ = error
    return result


def _streams_error(error: kafka_errors.KafkaError, doing: str, group: str, right: str) -> StreamsError:
    match error:
        case kafka_errors.CommitFailedError() if error.args and _is_rebalancing(error.args[0]):
            return BrokerUnavailableError(f"{doing}: the group is rebalancing; retry after the rebalance")
        case kafka_errors.RebalanceInProgressError():
            return BrokerUnavailableError(f"{doing}: the group is rebalancing; retry after the rebalance")
        case (
            kafka_errors.CommitFailedError()
            | kafka_errors.UnknownMemberIdError()
            | kafka_errors.IllegalGenerationError()
        ):
            return TaskMigratedError(f"{doing}: this member is no longer in the group ({error})")
        case kafka_errors.FencedInstanceIdError():
            return StreamsError(
                f"{doing}: another member has joined with the same group.instance.id and replaced this one; give every "
                "instance its own"
            )
        case kafka_errors.AuthorizationError():
            return StreamsError(f"{doing}: {_missing(error, group, right)}")
        case kafka_errors.SaslAuthenticationFailedError():
            return StreamsError(
                f"{doing}: the broker refused the login; correct sasl.username, sasl.password and sasl.mechanism"
            )
        case kafka_errors.InvalidSessionTimeoutError():
            return ConfigError(
                f"{doing}: the broker does not accept this session.timeout.ms; its limits are "
                "group.min.session.timeout.ms and group.max.session.timeout.ms",
                key="session.timeout.ms",
            )
        case kafka_errors.InconsistentGroupProtocolError():
            return StreamsError(
                f"{doing}: the group has members that are not Kafka Streams members; choose another application.id"
            )
        case _ if is_retriable(error):
            return BrokerUnavailableError(f"{doing}: {_text_of(error)}")
        case _:
            return StreamsError(f"{doing}: {_text_of(error)}")


def _text_of(error: kafka_errors.KafkaError) -> str:
    """Return the text of an error. kafka-python shows an error without a text as ``KafkaTimeoutError: None``."""
    return str(error).removesuffix(": None")


def _missing(error: kafka_errors.KafkaError, group: str, right: str) -> str:
    said = error.args[0] if error.args else ()
    match error:
        case kafka_errors.GroupAuthorizationFailedError():
            return missing_right(right, GROUP, [group or str(said)])
        case kafka_errors.TopicAuthorizationFailedError():
            topics = [said] if isinstance(said, str) else [str(topic) for topic in said]
            # One prefix covers all internal topics of an application.
            own = bool(group and topics) and all(topic.startswith(f"{group}-") for topic in topics)
            return missing_right(right, TOPIC, topics, prefix=f"{group}-" if own else "")
        case kafka_errors.TransactionalIdAuthorizationFailedError():
            return missing_right("WRITE", TRANSACTIONAL_ID, prefix=f"{group}-" if group else "")
        case kafka_errors.ClusterAuthorizationFailedError():
            return missing_right(right, CLUSTER)
        case _:
            return f"the broker does not allow it ({error})"


def _is_rebalancing(reason: object) -> bool:
    return isinstance(reason, kafka_errors.RebalanceInProgressError)
