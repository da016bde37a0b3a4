"""Measurements of the last 30 to 60 seconds."""

from __future__ import annotations

from streams_py.topology.metrics.averages import Sampled


def test_extent_is_that_of_all_values_of_the_last_windows() -> None:
    sampled = Sampled()
    for value, now_ms in ((4, 1_000), (-2, 1_000), (10, 30_999), (0, 31_000)):
        sampled.add(value, now_ms)
    assert sampled.extent(40_000) == (3, -2, 10)


def test_values_are_forgotten_when_their_window_is_old() -> None:
    sampled = Sampled()
    sampled.add(100, 0)
    sampled.add(1, 30_000)
    assert sampled.extent(59_999) == (50.5, 1, 100)
    assert sampled.extent(60_000) == (1, 1, 1)
    sampled.add(3, 60_000)
    sampled.add(5, 60_001)
    assert sampled.extent(60_001) == (3, 1, 5)
    assert sampled.extent(120_000) is None


def test_clock_that_is_set_back_begins_a_new_window() -> None:
    sampled = Sampled()
    sampled.add(100, 50_000)
    sampled.add(7, 20_000)
    assert sampled.extent(20_001) == (7, 7, 7)


def test_nothing_is_said_before_anything_was_measured() -> None:
    assert Sampled().extent(0) is None
