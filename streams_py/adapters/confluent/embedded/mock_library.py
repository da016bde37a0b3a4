"""librdkafka's mock cluster, called with ctypes: a small Kafka broker for development.

The confluent-kafka wheel contains librdkafka as a shared library that exports the whole ``rd_kafka_mock_*`` API, which
the Python binding does not expose. :class:`MockCluster` owns one cluster in this process. Its brokers listen on the
loopback interface and run in a thread of the library. Any Kafka client on this machine may connect.

A partition of the mock cluster keeps 5 MB. It then drops its oldest records without a report, and no API changes the
limit. For a changelog topic that is data loss. So :meth:`MockCluster.raise_retention` finds the limits of partitions in
this process's memory and raises them. They are identified reliably: two adjacent words contain the two default limits,
and before them is the head of a list, which points at itself or at an element that points back. Where memory cannot be
searched (only Linux has ``/proc/self``), the limits stay, and the caller has to watch for losses.

Tested with librdkafka 2.16. Probe tests cover everything here, so they fail with a version that differs.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from streams_py.adapters.confluent.library import Signatures, librdkafka
from streams_py.errors import StreamsError, UnsupportedOperationError

TOPIC_ALREADY_EXISTS: Final = 36
"""Error code of Kafka's protocol."""

_PRODUCER: Final = 0
_ERROR_TEXT_BYTES: Final = 512

_Handle = ctypes.c_void_p
_Text = ctypes.c_char_p
_Int = ctypes.c_int

_SIGNATURES: Final[Signatures] = {
    "rd_kafka_conf_new": (_Handle, []),
    "rd_kafka_conf_set": (_Int, [_Handle, _Text, _Text, _Text, ctypes.c_size_t]),
    "rd_kafka_new": (_Handle, [_Int, _Handle, _Text, ctypes.c_size_t]),
    "rd_kafka_destroy": (None, [_Handle]),
    "rd_kafka_err2str": (_Text, [_Int]),
    "rd_kafka_mock_cluster_new": (_Handle, [_Handle, _Int]),
    "rd_kafka_mock_cluster_destroy": (None, [_Handle]),
    "rd_kafka_mock_cluster_bootstraps": (_Text, [_Handle]),
    "rd_kafka_mock_topic_create": (_Int, [_Handle, _Text, _Int, _Int]),
    "rd_kafka_mock_partition_delete_records": (_Int, [_Handle, _Text, ctypes.c_int32, ctypes.c_int64]),
    "rd_kafka_mock_partition_set_leader": (_Int, [_Handle, _Text, ctypes.c_int32, ctypes.c_int32]),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [_Handle, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_down": (_Int, [_Handle, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_up": (_Int, [_Handle, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_rtt": (_Int, [_Handle, ctypes.c_int32, _Int]),
    "rd_kafka_mock_push_request_errors_array": (None, [_Handle, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(_Int)]),
}


def _mock_api() -> Any:
    try:
        return librdkafka(_SIGNATURES)
    except UnsupportedOperationError as missing:
        raise UnsupportedOperationError(
            f"the embedded cluster needs librdkafka's mock API: {missing}, or set bootstrap.servers to a Kafka broker"
        ) from None


class MockCluster:
    """One mock cluster in this process. Methods raise StreamsError when librdkafka refuses."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = library = _mock_api()
        text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        settings = library.rd_kafka_conf_new()
        library.rd_kafka_conf_set(settings, b"log_level", b"2", text, _ERROR_TEXT_BYTES)
        self._owner = library.rd_kafka_new(_PRODUCER, settings, text, _ERROR_TEXT_BYTES)
        if not self._owner:
            raise StreamsError(f"the embedded cluster could not be started: {text.value.decode()}")
        self._cluster = library.rd_kafka_mock_cluster_new(self._owner, brokers)
        if not self._cluster:
            library.rd_kafka_destroy(self._owner)
            raise StreamsError("the embedded cluster could not be started: no free port on the loopback interface?")
        # Kafka brokers wait 3 s for further members of a new group. That delay is useless in development.
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.brokers = brokers
        self.bootstrap: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create_topic(self, name: str, partitions: int, replicas: int = 1) -> int:
        """Create a topic; return 0 or an error code of Kafka's protocol such as TOPIC_ALREADY_EXISTS."""
        code: int = self._library.rd_kafka_mock_topic_create(
            self._cluster, name.encode(), partitions, min(max(replicas, 1), self.brokers)
        )
        return code

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the batches that end below offset ``before``."""
        self._check(
            self._library.rd_kafka_mock_partition_delete_records(self._cluster, topic.encode(), partition, before)
        )

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker (1, 2, ...) the leader of a partition."""
        self._check(self._library.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker))

    def stop_broker(self, broker: int) -> None:
        """Close a broker's connections and refuse new ones. The broker keeps its data."""
        self._check(self._library.rd_kafka_mock_broker_set_down(self._cluster, broker))

    def start_broker(self, broker: int) -> None:
        """Undo :meth:`stop_broker`."""
        self._check(self._library.rd_kafka_mock_broker_set_up(self._cluster, broker))

    def set_round_trip(self, broker: int, round_trip_ms: int) -> None:
        """Delay each response of a broker by ``round_trip_ms``."""
        self._check(self._library.rd_kafka_mock_broker_set_rtt(self._cluster, broker, round_trip_ms))

    def push_errors(self, api_key: int, codes: Sequence[int]) -> None:
        """Answer the next ``len(codes)`` requests with this API key of Kafka's protocol with these error codes."""
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, api_key, len(codes), (_Int * len(codes))(*codes)
        )

    def raise_retention(self, limit_bytes: int, *, partitions: int) -> int:
        """Raise the size limit of partitions with the default limits to ``limit_bytes``.

        Returns:
            The number of partitions found, at most ``partitions``.
        """
        raised = 0
        for address in islice(_partition_limits(), partitions):
            ctypes.memmove(address, struct.pack("<QQ", limit_bytes, limit_bytes), 16)
            raised += 1
        return raised

    def close(self) -> None:
        """Stop the brokers. All data is lost."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._owner)

    def _check(self, code: int) -> None:
        if code:
            reason = self._library.rd_kafka_err2str(code).decode()
            raise StreamsError(f"the embedded cluster refused: {reason}")


# -- the limits of a partition, in memory ------------------------------------------------------------------------------

# struct rd_kafka_mock_partition_s, in part: list head {first, last}, size, count, size limit, count limit.
_DEFAULT_LIMITS: Final = struct.pack("<QQ", 5 * 1024 * 1024, 100_000)
_HEAD_BEFORE_LIMITS_BYTES: Final = 32
_ARENA_BYTES: Final = 64 << 20


def _partition_limits() -> Iterator[int]:
    """Yield the address of the size limit of each partition that still has the default limits."""
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8 or sys.byteorder != "little":
        return
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for start, content in _writable_memory(memory):
            found = content.find(_DEFAULT_LIMITS)
            while found >= 0:
                if _is_partition(memory, start, content, found - _HEAD_BEFORE_LIMITS_BYTES):
                    yield start + found
                found = content.find(_DEFAULT_LIMITS, found + 8)


def _is_partition(memory: BinaryIO, start: int, content: bytes, head: int) -> bool:
    """Whether ``content[head:]`` begins with a list head of BSD's TAILQ.

    The last link of an empty list is the head itself. In any other list, the first element links back to the head.
    """
    if head < 0:
        return False
    first, last = struct.unpack_from("<QQ", content, head)
    if first == 0:
        return bool(last == start + head)
    try:
        memory.seek(first + 8)
        return memory.read(8) == struct.pack("<Q", start + head)
    except (OSError, OverflowError, ValueError):  # not an address
        return False


def _writable_memory(memory: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (address, content) of each private writable mapping that may belong to the allocator."""
    spans = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *_, name = [*line.split(maxsplit=5), ""][:6]
        if rights.startswith("rw-p") and name in ("", "[heap]"):
            start, end = (int(part, 16) for part in span.split("-"))
            spans.append((start, end))
    # The data is nearly always in glibc's arena of the mock cluster's thread, which is aligned. So search arenas first.
    for start, end in sorted(spans, key=lambda span: (span[0] % _ARENA_BYTES != 0, span)):
        try:
            memory.seek(start)
            yield start, memory.read(end - start)
        except OSError:  # a guard page, or unmapped meanwhile
            continue
