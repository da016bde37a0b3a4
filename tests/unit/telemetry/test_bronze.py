"""Bronze rows from records of an events topic, including records that cannot be parsed."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from streams_py.events.codec import encode_value
from streams_py.telemetry.bronze import BAD, OK, UNKNOWN, bronze_batches
from streams_py.telemetry.fold import GroupFold
from tests.support.events.golden import EVENTS
from tests.support.telemetry.history import START_MS


def test_records_that_are_none_are_told_apart_and_no_time_is_taken_for_one() -> None:
    sample = encode_value(EVENTS["sample"])
    torn = json.dumps(json.loads(sample) | {"busy_us": [1]}).encode()
    values = [sample, torn, sample.replace(b'"v":1', b'"v":2', 1), None]
    times = [5, 2**62, -1, 253_402_300_800_000]
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["t"] * 4, "partition": [0] * 4, "offset": [0, 1, 2, 3], "timestamp_ms": times, "value": values}
    )
    (made,) = bronze_batches(iter([batch]))
    rows = made.to_pylist()
    assert [row["status"] for row in rows] == [OK, BAD, UNKNOWN, BAD]
    assert "busy_us" in rows[1]["reason"]
    assert [row["append_ms"] for row in rows] == [5, 0, 0, 0]


@pytest.mark.parametrize("change", [{"busy_us": [1]}, {"input_lag": []}, {"at_ms": 2**62}])
def test_event_whose_fields_contradict_each_other_is_passed_over(change: dict[str, object]) -> None:
    """An earlier release has taken it for one, and kept it in bronze."""
    fields = json.loads(encode_value(EVENTS["sample"])) | change
    made = GroupFold()
    assert list(made.feed(json.dumps(fields).encode(), START_MS, START_MS)) == []
