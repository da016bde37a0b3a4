"""The offset topic: the positions of source connectors.

Source: Kafka's ``KafkaOffsetBackingStore``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streams_py.connect.api import JsonMap
from streams_py.connect.stores.log import LoggedStore, TopicLog
from streams_py.errors import SerializationError, TimeoutExceededError
from streams_py.ports import RawRecord
from streams_py.system.foreign_json import loads as loads_foreign

_log = logging.getLogger("streams_py.connect")

_READ_S = 30.0


def offset_key(connector: str, partition: JsonMap) -> bytes:
    """Return the key ``["connector",{source partition}]``. Equal partitions give the same bytes."""
    return _text([connector, dict(partition)], connector)


def _text(value: Any, whose: str) -> bytes:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise SerializationError(
            f"a source partition or offset of {whose} cannot be written as JSON: it contains NaN or Infinity, or itself"
        ) from None


class OffsetStore(LoggedStore):
    """Offsets of all source connectors, by :func:`offset_key`."""

    def __init__(self, make_log: Callable[[Callable[[RawRecord], None]], TopicLog], partitions: int) -> None:
        super().__init__(make_log, partitions)
        self._offsets: dict[bytes, dict[str, Any]] = {}

    def write(self, offsets: Mapping[bytes, JsonMap | None], timeout_s: float) -> None:
        """Write offsets by :func:`offset_key`, and wait. None removes an offset.

        Raises:
            TimeoutExceededError: Not acknowledged in time. Other errors of the send propagate.
        """
        records = [
            (key, None if offset is None else _text(dict(offset), key.decode())) for key, offset in offsets.items()
        ]
        self._log.write_all(records, timeout_s)

    def of(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return (source partition, offset) pairs of a connector, as far as the topic has been read."""
        with self._lock:
            entries = list(self._offsets.items())
        decoded = ((loads_foreign(key), offset) for key, offset in entries)
        return [(key[1], offset) for key, offset in decoded if key[0] == connector]

    def reader(self, connector: str) -> _Reader:
        """Return the reader for a connector's tasks."""
        return _Reader(self, connector)

    def find(self, keys: list[bytes]) -> list[dict[str, Any] | None]:
        """Return offsets by key, after reading the topic to its end. Raises TimeoutExceededError."""
        if not self._log.read_to_end(_READ_S):
            raise TimeoutExceededError(f"the offset topic could not be read to its end within {_READ_S:.0f} s")
        with self._lock:
            return [None if (found := self._offsets.get(key)) is None else dict(found) for key in keys]

    def _read(self, record: RawRecord) -> None:
        key, value = record.key(), record.value()
        try:
            connector, partition = loads_foreign(key or b"")
            canonical = offset_key(connector, partition)
            offset = None if value is None else loads_foreign(value)
            if offset is not None and not isinstance(offset, dict):
                raise ValueError("the offset is not a JSON object")
        except (ValueError, TypeError, SerializationError) as error:
            _log.warning(
                "the offset record at partition %d, offset %d is not valid; ignoring it: %s",
                record.partition(),
                record.offset(),
                error,
            )
            return
        with self._lock:
            if offset is None:
                self._offsets.pop(canonical, None)
            else:
                self._offsets[canonical] = offset


class _Reader:
    """The ``OffsetReader`` of a connector."""

    def __init__(self, store: OffsetStore, connector: str) -> None:
        self._store = store
        self._connector = connector

    def offset(self, partition: JsonMap) -> dict[str, Any] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Iterable[JsonMap]) -> list[dict[str, Any] | None]:
        return self._store.find([offset_key(self._connector, partition) for partition in partitions])
