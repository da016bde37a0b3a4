"""Readers handle damaged bytes correctly, and the fuzzer finds readers that do not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fuzz import TARGETS, Target, find_vectors, fuzz_target, inputs_for
from tests.support.fuzz.run import feed
from tests.support.fuzz.target import from_bytes

PATIENT_S = 10.0
"""Limit that disables the check of processor time, because the machine may be busy."""
READS_ANYTHING = {"process_file"}
REFUSES_EVERYTHING = {"serde_void"}


@pytest.mark.parametrize("name", TARGETS)
def test_reader_returns_a_value_or_a_documented_error(name: str) -> None:
    result = fuzz_target(name, 300, vectors=find_vectors(), seconds_max=PATIENT_S)
    assert not result.findings, [(finding.what, finding.data[:80]) for finding in result.findings]
    assert result.inputs == 300 == result.values + result.refused.total()
    assert bool(result.values) == (name not in REFUSES_EVERYTHING)
    assert bool(result.refused) == (name not in READS_ANYTHING)


@pytest.mark.weekly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TARGETS)
def test_reader_returns_a_value_or_a_documented_error_for_many_inputs(name: str) -> None:
    result = fuzz_target(name, 20_000, seed=2, vectors=find_vectors(), seconds_max=PATIENT_S)
    assert not result.findings, [(finding.what, finding.data[:80]) for finding in result.findings]


def test_targets_can_be_fed_without_recorded_vectors() -> None:
    result = fuzz_target("subscription_info", 100, vectors=None, seconds_max=PATIENT_S)
    assert result.values
    assert not result.findings


def test_inputs_are_the_same_for_the_same_seed_and_of_every_kind() -> None:
    corpus = [bytes(range(40)), b"second sample, somewhat longer than the first one"]

    def drawn(seed: int) -> list[tuple[bytes, bool]]:
        return list(itertools.islice(inputs_for(corpus, random.Random(seed), bytes_max=20_000), 3_000))

    inputs = drawn(1)
    assert inputs == drawn(1) != drawn(2)
    plain = {data for data, hurts in inputs if not hurts}
    assert plain >= set(corpus), "whole ones"
    assert any(corpus[0].startswith(data) and data not in corpus for data in plain), "cut ones"
    assert any(data[:5] == corpus[0][:5] and data[-5:] == corpus[1][-5:] for data in plain), "spliced ones"
    assert any(b"\x7f\xff\xff\xff" in data for data, hurts in inputs if hurts), "lengths that hurt"
    assert max(len(data) for data, _ in inputs) > 5_000, "large ones"
    assert max(len(data) for data, _ in inputs) <= 20_000


def small(read: Callable[[bytes], object], write: Callable[[object], bytes] | None = None) -> Target:
    return Target(from_bytes(read), (ValueError,), lambda folder: [b"17"], write=write)


def leaks(data: bytes) -> int:
    return data[1]


def bloats(data: bytes) -> int:
    return len(bytearray(5_000_000))


def recurses(data: bytes) -> int:
    return recurses(data)


def cannot_write(value: object) -> bytes:
    raise IndexError(value)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (small(leaks), "IndexError"),
        (small(bloats), "held 5,0"),
        (small(recurses), "RecursionError"),
        (small(len, write=lambda value: b"x"), "reads differently after it was written"),
        (small(len, write=cannot_write), "cannot be written again: IndexError"),
        (small(int, write=lambda value: b"none"), "the written value cannot be read: ValueError"),
    ],
    ids=["undocumented", "bloat", "recursion", "other value", "no way back", "unreadable"],
)
def test_fuzzer_notices_what_no_reader_may_do(target: Target, found: str) -> None:
    result = feed(target, "planted", 300, seconds_max=PATIENT_S)
    assert result.findings
    assert any(finding.what.startswith(found) for finding in result.findings), result.findings[0].what


def test_fuzzer_notices_an_input_that_takes_too_long() -> None:
    def spin(data: bytes) -> int:
        return sum(range(20_000))

    result = feed(small(spin), "planted", 5, seconds_max=0.0)
    assert result.findings[0].what.startswith("took ")


def test_each_target_has_a_folder_of_its_own(tmp_path: Path) -> None:
    seen = set()

    def read(data: bytes, folder: Path) -> int:
        seen.add(folder)
        (folder / "file").write_bytes(data)
        return len(data)

    target = Target(read, (), lambda folder: [b"x"])
    feed(target, "planted", 3, seconds_max=PATIENT_S)
    feed(target, "planted", 3, seconds_max=PATIENT_S)
    assert len(seen) == 2
    assert not any(folder.exists() for folder in seen)
