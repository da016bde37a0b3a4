"""Feeding one target, within bounds of time and memory."""

from __future__ import annotations

import random
import struct
import tempfile
import time
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from streams_protocol import DecodeError, EncodeError
from streams_py.system.quiet_logs import quiet_logs
from streams_py.testing.fuzz.inputs import inputs_for, recorded
from streams_py.testing.fuzz.protocol_targets import PROTOCOL_TARGETS
from streams_py.testing.fuzz.record_targets import RECORD_TARGETS
from streams_py.testing.fuzz.target import Finding, FuzzResult, Target
from streams_py.testing.fuzz.text_targets import TEXT_TARGETS

__all__ = ["TARGETS", "feed", "fuzz_target"]

TARGETS: Final[Mapping[str, Target]] = {**PROTOCOL_TARGETS, **TEXT_TARGETS, **RECORD_TARGETS}
"""Everything that is fed, by name."""

SECONDS_MAX: Final = 0.05
"""Processor time for one input of up to a megabyte."""
MEMORY_SLACK_BYTES: Final = 1 << 20
"""A reader may hold this much besides what its input allows for."""
_MEASURE_ONE_IN: Final = 40
"""Memory is measured for one input in so many (it is slow), and for every one that promises great lengths."""
_FINDINGS_MAX: Final = 10
_WARM_UP: Final = 40


def fuzz_target(
    name: str, inputs: int, *, seed: int = 1, vectors: Path | None = None, seconds_max: float = SECONDS_MAX
) -> FuzzResult:
    """Feed one target. KeyError for a name that is not in :data:`TARGETS`."""
    return feed(TARGETS[name], name, inputs, seed=seed, vectors=vectors, seconds_max=seconds_max)


def feed(
    target: Target,
    name: str,
    inputs: int,
    *,
    seed: int = 1,
    vectors: Path | None = None,
    seconds_max: float = SECONDS_MAX,
) -> FuzzResult:
    """Feed any target; an input may take ``seconds_max`` seconds of processor time."""
    rng = random.Random(f"fuzz {name} {seed}")
    result = FuzzResult(name)
    with tempfile.TemporaryDirectory(prefix="streams-py-fuzz-") as path, quiet_logs():
        folder = Path(path)
        corpus = [*recorded(vectors, target.vectors), *target.samples(folder)]
        for sample in corpus[:_WARM_UP]:  # what is imported or cached at first use is not what an input costs
            with suppress(Exception):
                target.read(sample, folder)
        drawn = inputs_for(corpus, rng, bytes_max=target.input_bytes_max)
        for number, (data, hurts) in zip(range(inputs), drawn, strict=False):
            result.inputs += 1
            result.input_bytes += len(data)
            _feed(target, data, folder, result, seconds_max, measure=hurts or number % _MEASURE_ONE_IN == 0)
            if len(result.findings) >= _FINDINGS_MAX:
                break
    return result


def _feed(target: Target, data: bytes, folder: Path, result: FuzzResult, seconds_max: float, *, measure: bool) -> None:
    value: object = None
    error: BaseException | None = None
    if measure:
        tracemalloc.start()
    started = time.thread_time()
    try:
        value = target.read(data, folder)
    except KeyboardInterrupt:
        raise
    except BaseException as raised:  # SystemExit, MemoryError and RecursionError are findings, too
        error = raised
    seconds = time.thread_time() - started
    if measure:
        _, held = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        result.most_memory = max(result.most_memory, held)
        if held > max(target.memory_factor * len(data) + MEMORY_SLACK_BYTES, target.memory_bytes_max):
            _find(result, f"held {held:,} bytes for an input of {len(data):,}", data)
    if not measure or seconds > seconds_max:
        result.seconds += seconds
        if seconds > seconds_max:  # measuring memory makes it slow, and so may whatever else happened just then
            seconds = _fastest(target, data, folder)
        result.slowest = max(result.slowest, seconds)
        if seconds > seconds_max:
            _find(result, f"took {1000 * seconds:.0f} ms for {len(data):,} bytes", data)
    if error is None:
        result.values += 1
        _check_way_back(target, value, data, folder, result)
    elif isinstance(error, target.allowed):
        result.refused["struct.error" if isinstance(error, struct.error) else type(error).__name__] += 1
    else:
        _find(result, f"{type(error).__name__}: {error}", data)


def _fastest(target: Target, data: bytes, folder: Path) -> float:
    """Processor time that the input takes by itself, without what else may have happened just then."""
    taken = []
    for _ in range(3):
        started = time.thread_time()
        with suppress(Exception):
            target.read(data, folder)
        taken.append(time.thread_time() - started)
    return min(taken)


def _check_way_back(target: Target, value: object, data: bytes, folder: Path, result: FuzzResult) -> None:
    if target.write is None:
        return
    try:
        written = target.write(value)
    except EncodeError:
        return  # what was read cannot always be written: a future version, a value that only a reader tolerates
    except DecodeError:
        return  # client tags that occur twice are refused when they are looked at
    except Exception as error:
        _find(result, f"cannot be written again: {type(error).__name__}: {error}", data)
        return
    if written is None:
        return
    try:
        again = target.read(written, folder)
    except Exception as error:
        _find(result, f"what was written cannot be read: {type(error).__name__}: {error}", data)
        return
    if not target.same(value, again):
        _find(result, "reads differently after it was written", data)


def _find(result: FuzzResult, what: str, data: bytes) -> None:
    result.findings.append(Finding(result.target, what, data))
