"""The progress of a run: tasks report it to the driver, and the driver to its user.

Spark does not show progress inside a task, and tasks over a history are long. So each task sends the driver a datagram
with its record count every second. No task waits for an answer. A lost datagram does not matter, because the next one
has the new count. If a network blocks datagrams, progress changes with the stages. Progress is only for display.

Accumulators of Spark do not work for this: a Python accumulator reaches the driver only when a task has finished. On a
cluster with enough cores all tasks finish at about the same time. The driver listens on the same address as Spark's
driver, and on loopback only if all workers are on this machine.
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

_SEND_EVERY_S: Final = 1.0
_TELL_EVERY_S: Final = 0.5
_LOOK_S: Final = 0.2
_DATAGRAM: Final = struct.Struct(">16si?qq")
_TOKEN_BYTES: Final = 16
_LOOPBACK: Final = "127.0.0.1"


class HistoryProgress(NamedTuple):
    """The progress of a run.

    Attributes:
        stage: number of finished stages.
        stages: number of all stages.
        records: records of the current stage that are read, or, with ``is_processed``, that its tasks have processed.
        total: upper bound of the stage's records; None when it is not known.
        is_processed: whether ``records`` counts processed records. A stage reads first and processes later.
        run: name of the run, if a command has several.
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
    """The address for progress reports of a stage. It is sent to workers. Datagrams without ``token`` are ignored."""

    address: tuple[str, int]
    token: bytes
    stage: int


class RecordCounter:
    """Counts the records of a worker, one part of a stage after the other, and reports the counts every second."""

    def __init__(self, reports: StageReports | None, *, is_processed: bool) -> None:
        self._reports = reports
        self._is_processed = is_processed
        self._part = self._count = 0
        self._next_s = time.monotonic() + _SEND_EVERY_S
        self._socket: socket.socket | None = None
        self._address: Any = None

    def begin(self, part: int) -> None:
        """Start counting a part from 0."""
        self._part, self._count = part, 0

    def add(self, count: int) -> None:
        """Add records to the count, and report it if the last report is a second old."""
        self._count += count
        if self._reports is not None and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _SEND_EVERY_S
            self._send(self._reports)

    def end(self) -> None:
        """Report the final count of the part."""
        if self._reports is not None:
            self._send(self._reports)

    def _send(self, reports: StageReports) -> None:
        if self._socket is None:
            try:
                family, *_, self._address = socket.getaddrinfo(*reports.address, type=socket.SOCK_DGRAM)[0]
                self._socket = socket.socket(family, socket.SOCK_DGRAM)
            except OSError:
                self._reports = None  # resolving the driver's name repeatedly would delay the records
                return
            self._socket.setblocking(False)
        said = _DATAGRAM.pack(reports.token, reports.stage, self._is_processed, self._part, self._count)
        with contextlib.suppress(OSError):  # the report is lost
            self._socket.sendto(said, self._address)


class ProgressListener:
    """Adds up the workers' reports on the driver, and calls ``tick``.

    It listens on the address ``bind``, which workers reach as ``host``.
    """

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
        with contextlib.suppress(OSError):  # then progress changes only with the stages
            self._socket = socket.socket(socket.getaddrinfo(bind, 0)[0][0], socket.SOCK_DGRAM)
            self._socket.bind((bind, 0))
            self._socket.settimeout(_LOOK_S)
            self._thread = threading.Thread(target=self._listen, name="history-progress", daemon=True)
            self._thread.start()

    def begin(self, stage: int, total: int | None) -> StageReports | None:
        """Start a stage with at most ``total`` records. Returns the address for its workers."""
        with self._lock:
            self._stage, self._total, self._counts = stage, total, {}
            self._tick(HistoryProgress(stage, self._stages, 0, total))
        if self._socket is None:
            return None
        return StageReports((self._host, self._socket.getsockname()[1]), self._token, stage)

    def end(self, records: int) -> None:
        """Finish the stage, which has processed ``records`` records."""
        with self._lock:
            self._tick(HistoryProgress(self._stage, self._stages, records, records, is_processed=True))
            self._stage += 1

    def _listen(self) -> None:
        assert self._socket is not None
        next_s = 0.0
        while not self._ended.is_set():
            with contextlib.suppress(OSError):  # timeout without a datagram
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
        """Stop listening."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._socket is not None:
            self._socket.close()


@contextlib.contextmanager
def listening(spark: SparkSession, tick: Tick | None, stages: int) -> Iterator[ProgressListener | None]:
    """Create the listener of one run; None without a ``tick``."""
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
