"""Python imports this when it starts, in commands and in Spark's workers: consumers then do what ``ODD_CLIENT`` says.

``again``: each call of ``consume`` delivers its records twice. ``lost TOPIC``: records of a topic at the offset 7 do
not come. ``poll``, which the plain count uses, is as it was.
"""

from __future__ import annotations

import os

import confluent_kafka

_ODD = os.environ.get("ODD_CLIENT")
_LOST = 7


class _OddConsumer(confluent_kafka.Consumer):
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[confluent_kafka.Message]:
        messages = super().consume(num_messages, timeout)
        records = [message for message in messages if message.error() is None]
        if _ODD == "again":
            return [*messages, *records]
        lost = [message for message in records if (f"lost {message.topic()}", message.offset()) == (_ODD, _LOST)]
        return [message for message in messages if message not in lost]


if _ODD:
    confluent_kafka.Consumer = _OddConsumer  # type: ignore[misc]  # for all who import it from here on
