"""A value that is not a boundary is refused, and never treated as the end of all records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from streams_py.errors import ConfigError
from streams_py.history.boundaries import checked_instant, checked_until

pytest.importorskip("pyarrow")

import numpy as np

from streams_py.spark import run


@pytest.mark.parametrize("given", [1.5e12, "1500", True, datetime(2024, 1, 1, tzinfo=UTC), [5]])
def test_instant_that_is_no_integer_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"until = .*pass a timestamp in ms"):
        checked_until(given)
    with pytest.raises(ConfigError, match=r"since = .*pass a timestamp in ms"):
        checked_instant(given, "since")


@pytest.mark.parametrize("ends", [5, {0: "7"}, {"first": 7}, {0: None}, {None: 7}])
def test_offsets_that_are_none_are_refused_with_their_topic(ends: Any) -> None:
    with pytest.raises(ConfigError, match=r"until: lines has .*pass a mapping partition -> offset"):
        checked_until({"lines": ends})


def test_numbers_of_numpy_are_numbers() -> None:
    assert checked_until(np.int64(1_500)) == checked_instant(np.int64(1_500), "since") == 1_500
    assert checked_until({"lines": {np.int32(0): np.int64(7), "1": 8}}) == {"lines": {0: 7, 1: 8}}
    assert checked_until(None) is checked_instant(None, "since") is None


def test_run_refuses_them_before_anything_is_read() -> None:
    for wrong in ({"until": 1.5e12}, {"until": {"lines": 5}}, {"since": "yesterday"}):
        given: Any = wrong
        with pytest.raises(ConfigError, match=r"until|since"):
            run("nowhere:topology", {}, **given)
