"""The rule that selects the records of a range from the messages of a client, independent of the client.

A record is returned if and only if its offset is at least the position and below the end of the range. The position
then becomes the record's offset + 1. An end-of-partition event, in its order among the records, moves the position
forward to the event's offset. The range is finished when the position has reached its end.

This rule covers all cases:

* Gaps (compaction, aborted records, transaction markers) are offsets without a record. The next record or event moves
  the position past them.
* Records that the client redelivers, for example after a change of leaders, are below the position.
* A record after the end shows that the range has no further records, because clients deliver in offset order.

The client's own position is not used, because librdkafka's position is not reliable: at end-of-partition events it was
off by two (librdkafka issue 4844).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import Final, cast

from confluent_kafka import KafkaError, Message

_error: Final = cast("Callable[[Message], KafkaError | None]", Message.error)
_offset: Final = cast("Callable[[Message], int]", Message.offset)


@dataclass(slots=True)
class Taken:
    """The result of a sequence of messages: records of the range with their offsets, and errors, both in order."""

    records: list[Message] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    errors: list[KafkaError] = field(default_factory=list)


@dataclass(slots=True)
class RangePosition:
    """The position of a reader in a range.

    Attributes:
        position: Offset of the next record to return.
        end: End offset of the range, exclusive.
        redelivered: Number of records that the client redelivered.
    """

    position: int
    end: int
    redelivered: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether all records of the range were returned."""
        return self.position >= self.end

    def take(self, messages: Sequence[Message]) -> Taken:
        """Apply the rule to the next messages of the client."""
        if not any(map(_error, messages)):
            # The usual case, at a third of the cost: the offsets are ascending and in the range, so all are returned.
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
