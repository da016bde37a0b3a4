"""The offset topic (specification 5.5)."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.connect.stores.offsets import OffsetStore, offset_key
from streams_py.errors import SerializationError
from tests.support.connect.memory_log import MemoryLog

JSON_BYTES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("1" * 5000),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
).map(lambda value: json.dumps(value).encode())


def test_source_offsets_are_found_however_their_keys_were_written() -> None:
    log = MemoryLog([(b'[ "a", {"z": 1, "b": "x"} ]', b'{"at": 5}'), (b"no json", b"{}")])
    store = OffsetStore(log, 1)  # type: ignore[arg-type]  # a log without a topic
    store.start()
    reader = store.reader("a")
    assert reader.offset({"b": "x", "z": 1}) == {"at": 5}
    assert store.reader("b").offset({"b": "x", "z": 1}) is None
    store.write({offset_key("a", {"z": 1, "b": "x"}): {"at": 6}}, 1.0)
    assert log.records[-1] == (b'["a",{"b":"x","z":1}]', b'{"at":6}')
    assert reader.offsets([{"z": 1, "b": "x"}, {}]) == [{"at": 6}, None]
    assert store.of("a") == [({"b": "x", "z": 1}, {"at": 6})]
    log.append(b'["a",{"b":"x","z":1}]', None)
    assert reader.offset({"z": 1, "b": "x"}) is None


@given(st.binary(), st.none() | st.binary() | JSON_BYTES)
def test_no_record_of_the_offset_topic_ends_its_reader(key: bytes, value: bytes | None) -> None:
    for start in (b"", b'["a",{}]'):
        log = MemoryLog([(start + key, value), (start, value)])
        OffsetStore(log, 1).start()  # type: ignore[arg-type]  # a log without a topic


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_offsets_that_could_not_be_read_again_are_not_written(number: float) -> None:
    log = MemoryLog([])
    store = OffsetStore(log, 1)  # type: ignore[arg-type]  # a log without a topic
    store.start()
    with pytest.raises(SerializationError, match="of a cannot be written"):
        offset_key("a", {"at": number})
    with pytest.raises(SerializationError, match="NaN or Infinity"):
        store.write({offset_key("a", {}): {"at": number}}, 1.0)
    assert log.records == []
