"""How far a run is, while it runs: what tasks tell the driver, and the driver its user.

Spark says nothing of what happens inside a task, and tasks over a history are long. So each sends the driver a datagram
a second: how many records it has taken. Nobody waits for them, and one that is lost is made good by the next; where a
network lets none through, the figures move with the stages. Nothing depends on them but what is shown.

Not Spark's accumulators: those of Python reach the driver when a task ends, and on a cluster with room for all tasks
they end together. The driver listens where Spark's own driver does, and on loopback only while all workers are on this
machine.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from streams_py.spark.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HistoryProgress", "ProgressListener", "RecordCounter", "StageReports", "Tick", "listening"]

_SEND_EVERY_S: Final = 1.0
_TELL_EVERY_S: Final = 0.5
_LOOK_S: Final = 0.2
_DATAGRAM: Final = struct.Struct(">16si?qq")
_TOKEN_BYTES: Final = 16
_LOOPBACK: Final = "127.0.0.1"


class HistoryProgress(NamedTuple):
    """``stage``: how many stages are done. ``records``: of the next one, that are read, or, with ``is_processed``, that
    its tasks have processed, which comes after. ``total``: how many there are at most, None when nobody has counted
    them. ``run``: which one, of several.
    """

    stage: int
    stages: int
    records: int
    total: int | None
    is_processed: bool = False
    run: str = ""


Tick: TypeAlias = "Callable[[HistoryProgress], None]"


@dataclass(frozen=True, slots=True)
class StageReports:
    """Where workers say how far the tasks of a stage are; it travels there. ``token``: what others send does not
    count."""

    address: tuple[str, int]
    token: bytes
    stage: int


class RecordCounter:
    """At a worker: counts records, one part of a stage after the other, and says so from time to time."""

    def __init__(self, reports: StageReports | None, *, is_processed: bool) -> None:
        self._reports = reports
        self._is_processed = is_processed
        self._part = self._count = 0
        self._next_s = time.monotonic() + _SEND_EVERY_S
        self._socket: socket.socket | None = None
        self._address: Any = None

    def begin(self, part: int) -> None:
        """What is counted next is of this part, from its beginning."""
        self._part, self._count = part, 0

    def add(self, count: int) -> None:
        """So many more."""
        self._count += count
        if self._reports is not None and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _SEND_EVERY_S
            self._send(self._reports)

    def end(self) -> None:
        """These are all of the part."""
        if self._reports is not None:
            self._send(self._reports)

    def _send(self, reports: StageReports) -> None:
        if self._socket is None:
            try:
                family, *_, self._address = socket.getaddrinfo(*reports.address, type=socket.SOCK_DGRAM)[0]
                self._socket = socket.socket(family, socket.SOCK_DGRAM)
            except OSError:
                self._reports = None  # looking for the driver again and again would hold up the records
                return
            self._socket.setblocking(False)
        said = _DATAGRAM.pack(reports.token, reports.stage, self._is_processed, self._part, self._count)
        with contextlib.suppress(OSError):  # then nobody hears of it
            self._socket.sendto(said, self._address)


class ProgressListener:
    """At the driver: adds up what workers say, and tells it now and then. Workers know the host that it listens at,
    ``bind``, as ``host``."""

    def __init__(self, tick: Tick, stages: int, bind: str, host: str) -> None:
        self._tick, self._stages = tick, stages
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._host = host
        self._lock = threading.Lock()
        self._stage = 0
        self._total: int | None = None
        self._counts: dict[bool, dict[int, int]] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):  # then the figures move with the stages
            self._socket = socket.socket(socket.getaddrinfo(bind, 0)[0][0], socket.SOCK_DGRAM)
            self._socket.bind((bind, 0))
            self._socket.settimeout(_LOOK_S)
            self._thread = threading.Thread(target=self._listen, name="history-progress", daemon=True)
            self._thread.start()

    def begin(self, stage: int, total: int | None) -> StageReports | None:
        """A stage begins, over so many records. What its workers need to know."""
        with self._lock:
            self._stage, self._total, self._counts = stage, total, {}
            self._tick(HistoryProgress(stage, self._stages, 0, total))
        if self._socket is None:
            return None
        return StageReports((self._host, self._socket.getsockname()[1]), self._token, stage)

    def end(self, records: int) -> None:
        """The stage is done, over so many records."""
        with self._lock:
            self._tick(HistoryProgress(self._stage, self._stages, records, records, is_processed=True))
            self._stage += 1

    def _listen(self) -> None:
        assert self._socket is not None
        next_s = 0.0
        while not self._ended.is_set():
            with contextlib.suppress(OSError):  # nothing came
                said = self._socket.recv(_DATAGRAM.size + 1)
                if len(said) == _DATAGRAM.size and self._hear(*_DATAGRAM.unpack(said)) and time.monotonic() >= next_s:
                    next_s = time.monotonic() + _TELL_EVERY_S
                    self._tell()

    def _hear(self, token: bytes, stage: int, is_processed: bool, part: int, count: int) -> bool:
        if token != self._token:
            return False
        with self._lock:
            if stage == self._stage:
                self._counts.setdefault(is_processed, {})[part] = count
        return True

    def _tell(self) -> None:
        with self._lock:
            if self._counts:
                is_processed = True in self._counts
                records = sum(self._counts[is_processed].values())
                self._tick(HistoryProgress(self._stage, self._stages, records, self._total, is_processed))

    def close(self) -> None:
        """Listen no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._socket is not None:
            self._socket.close()


@contextlib.contextmanager
def listening(spark: SparkSession, tick: Tick | None, stages: int) -> Iterator[ProgressListener | None]:
    """A listener for one run; None where nobody wants to know."""
    if tick is None:
        yield None
        return
    conf = spark.sparkContext.getConf()
    bind = host = _LOOPBACK
    if not is_local(str(spark.sparkContext.master)):
        host = str(conf.get("spark.driver.host", host))
        bind = str(conf.get("spark.driver.bindAddress", host))
    listener = ProgressListener(tick, stages, bind, host)
    try:
        yield listener
    finally:
        listener.close()
