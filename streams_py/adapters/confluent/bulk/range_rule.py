"""Which of the messages that a client delivers are the records of a range: one rule, without a client.

A record is given out if and only if its offset is at least the position and below the end of the range; the position
then is its offset + 1. An end-of-partition event, taken in its order among the records, moves the position forward to
its offset. The range is finished when the position has reached its end.

Everything else follows:

* Gaps (compaction, aborted records, transaction markers) are offsets that no record has. The next record or event moves
  the position over them.
* Records that the client delivers again, after a change of leaders for example, are below the position.
* A record behind the end shows that no further record of the range follows, because clients deliver in offset order.

The client's own position is not used. librdkafka's is a claim: at end-of-partition events it has been off by two
(its issue 4844).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import Final, cast

from confluent_kafka import KafkaError, Message

__all__ = ["RangePosition", "Taken"]

_error: Final = cast("Callable[[Message], KafkaError | None]", Message.error)
_offset: Final = cast("Callable[[Message], int]", Message.offset)


@dataclass(slots=True)
class Taken:
    """What a sequence of messages gives: records of the range with their offsets, and errors, both in their order."""

    records: list[Message] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    errors: list[KafkaError] = field(default_factory=list)


@dataclass(slots=True)
class RangePosition:
    """How far a range is read.

    Attributes:
        position: Offset from which on records are missing.
        end: End of the range, exclusive.
        redelivered: Number of records that the client delivered again.
    """

    position: int
    end: int
    redelivered: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether all records of the range have been given out."""
        return self.position >= self.end

    def take(self, messages: Sequence[Message]) -> Taken:
        """Apply the rule to the next messages of the client."""
        if not any(map(_error, messages)):
            # The usual case, which costs a third: offsets that ascend within the range are all given out.
            offsets = list(map(_offset, messages))
            if (
                offsets
                and self.position <= offsets[0]
                and offsets[-1] < self.end
                and all(map(lt, offsets, offsets[1:]))
            ):
                self.position = offsets[-1] + 1
                return Taken(list(messages), offsets)
        return self._one_by_one(messages)

    def _one_by_one(self, messages: Sequence[Message]) -> Taken:
        taken = Taken()
        for message in messages:
            error = _error(message)
            if error is None:
                offset = _offset(message)
                if offset < self.position:
                    self.redelivered += 1
                    continue
                if offset < self.end:
                    taken.records.append(message)
                    taken.offsets.append(offset)
                self.position = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self.position = max(self.position, message.offset() or 0)
            else:
                taken.errors.append(error)
        return taken
