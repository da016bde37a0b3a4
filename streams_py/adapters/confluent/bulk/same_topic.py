"""Whether a topic is still the one whose offsets were planned (KIP-516).

An offset means nothing without the topic that it is of: a topic that is deleted and created again under its name has
other records at the same offsets, and a consumer goes over to them without a word. So a range is planned together with
the id of its topic. Records count after the cluster has named that id *after* they were fetched: topics never get an
old id back, so at that moment all of them are records of the planned topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.settings import Settings
from streams_py.errors import BrokerUnavailableError, StreamsError

_Seen = TypeVar("_Seen")

_AGAIN_S: Final = (0.2, 0.5, 1.0)
"""Pauses before a refusal is checked again."""


class _Reconnecting(Protocol):
    def reconnect(self) -> None: ...


def believed(look: Callable[[], _Seen], cluster: _Reconnecting) -> _Seen:
    """What ``look`` finds on the cluster. An error counts when all of several looks, each with a new client, agree.

    A broker that starts, or is about to stop, may leave a topic out of an answer. A job must not end because of a
    single such answer. An answer that does not come at all is not asked for here: see :class:`LogAdmin`.
    """
    for pause_s in _AGAIN_S:
        try:
            return look()
        except BrokerUnavailableError:
            raise
        except StreamsError:
            cluster.reconnect()
            time.sleep(pause_s)
    return look()


def check_same_topics(known: Mapping[str, str], now: Mapping[str, str], use: str, remedy: str) -> None:
    """StreamsError when a topic has another id than the known one. A topic whose id is not known now passes. ``use``
    completes "is another one than ..."."""
    for topic, id in known.items():
        if now.get(topic, id) != id:
            raise StreamsError(
                f"topic {topic} is another one than {use} (its id is {now[topic]}, not {id}); was it deleted and "
                f"created again? {remedy}"
            )


class SameTopic:
    """Checks, for the reader of one topic, that the topic is still the planned one. Use it as a context manager.

    Args:
        settings: of an admin client.
        topic: name of the topic.
        topic_id: id that the range was planned with. None where the cluster gives no ids: then nothing is checked.
        timeout_ms: time limit of one check.
        every_ms: shortest time between two checks that :meth:`check` makes.
    """

    def __init__(
        self, settings: Settings, topic: str, topic_id: str | None, *, timeout_ms: int, every_ms: int = 0
    ) -> None:
        self._topic, self._topic_id = topic, topic_id
        self._every_s = every_ms / 1000
        self._checked_s = time.monotonic()
        self._admin = None if topic_id is None else LogAdmin(settings, timeout_ms=timeout_ms)

    def check(self) -> None:
        """Check before records are given out, unless the last check is recent enough. Errors as :meth:`check_now`."""
        if self._admin is not None and time.monotonic() - self._checked_s >= self._every_s:
            self.check_now()

    def check_now(self) -> None:
        """StreamsError when the topic is gone or another one; BrokerUnavailableError when the cluster does not say."""
        if self._admin is not None:
            believed(self._look, self._admin)
            self._checked_s = time.monotonic()

    def _look(self) -> None:
        assert self._admin is not None
        assert self._topic_id is not None
        now = self._admin.topic_ids([self._topic])
        if self._topic not in now:
            raise StreamsError(
                f"topic {self._topic} is gone (its id was {self._topic_id}); was it deleted while it was read?"
            )
        check_same_topics({self._topic: self._topic_id}, now, "was planned to be read", "Read it again from the start")

    def __enter__(self) -> SameTopic:
        return self

    def __exit__(self, *_: object) -> None:
        if self._admin is not None:
            self._admin.close()
