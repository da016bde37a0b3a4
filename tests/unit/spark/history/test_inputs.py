"""The inputs of the topics that a topology reads."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from streams_py.errors import ConfigError
from streams_py.spark.history.inputs import fixed_inputs


def test_archive_of_a_topic_whose_name_looks_like_an_option_is_an_archive() -> None:
    assert fixed_inputs({"kafka.events": "archive"}, frozenset({"kafka.events"})) == {"kafka.events": "archive"}
    both = {"kafka.events": "archive", "orders": "other"}
    assert fixed_inputs(both, frozenset(both)) == both
    with pytest.raises(ConfigError, match="topic orders has no input"):
        fixed_inputs({"kafka.events": "archive"}, frozenset(both))
