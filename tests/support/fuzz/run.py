"""Runs a fuzz target and checks its results, time and memory."""

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
from tests.support.fuzz.inputs import inputs_for, recorded
from tests.support.fuzz.protocol_targets import PROTOCOL_TARGETS
from tests.support.fuzz.record_targets import RECORD_TARGETS
from tests.support.fuzz.target import Finding, FuzzResult, Target
from tests.support.fuzz.text_targets import TEXT_TARGETS

TARGETS: Final[Mapping[str, Target]] = {**PROTOCOL_TARGETS, **TEXT_TARGETS, **RECORD_TARGETS}
"""All fuzz targets by name."""

SECONDS_MAX: Final = 0.05
"""Maximum processor time for one input of up to a megabyte, in s."""
MEMORY_SLACK_BYTES: Final = 1 << 20
"""Memory that a reader may use in addition to its multiple of the input size."""
_MEASURE_ONE_IN: Final = 40
"""Memory is measured for one in this number of inputs, because it is slow, and for all with extreme sizes."""
_FINDINGS_MAX: Final = 10
_WARM_UP: Final = 40


def fuzz_target(
    name: str, inputs: int, *, seed: int = 1, vectors: Path | None = None, seconds_max: float = SECONDS_MAX
) -> FuzzResult:
    """Run one target with this number of inputs. Raises KeyError for a name that is not in :data:`TARGETS`."""
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
    """Run any target. Each input may take ``seconds_max`` seconds of processor time."""
    rng = random.Random(f"fuzz {name} {seed}")
    result = FuzzResult(name)
    with tempfile.TemporaryDirectory(prefix="streams-py-fuzz-") as path, quiet_logs():
        folder = Path(path)
        corpus = [*recorded(vectors, target.vectors), *target.samples(folder)]
        for sample in corpus[:_WARM_UP]:  # imports and caches on first use must not count for an input
            with suppress(Exception):
                target.read(sample, folder)
        drawn = inputs_for(corpus, rng, bytes_max=target.input_bytes_max)
        for number, (data, hurts) in zip(range(inputs), drawn, strict=False):
            result.inputs += 1
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
    except BaseException as raised:  # SystemExit, MemoryError and RecursionError are also findings
        error = raised
    seconds = time.thread_time() - started
    if measure:
        _, held = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if held > max(target.memory_factor * len(data) + MEMORY_SLACK_BYTES, target.memory_bytes_max):
            _find(result, f"held {held:,} bytes for an input of {len(data):,}", data)
    if seconds > seconds_max:  # measuring memory, or other work of the machine, may have made it slow
        seconds = _fastest(target, data, folder)
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
    """Return the shortest processor time of three runs, in s."""
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
        return  # some values cannot be written: they have a future version, or only a reader tolerates them
    except DecodeError:
        return  # duplicate client tags are rejected on first access
    except Exception as error:
        _find(result, f"cannot be written again: {type(error).__name__}: {error}", data)
        return
    if written is None:
        return
    try:
        again = target.read(written, folder)
    except Exception as error:
        _find(result, f"the written value cannot be read: {type(error).__name__}: {error}", data)
        return
    if not target.same(value, again):
        _find(result, "reads differently after it was written", data)


def _find(result: FuzzResult, what: str, data: bytes) -> None:
    result.findings.append(Finding(result.target, what, data))
