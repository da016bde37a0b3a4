"""Errors, logs and tracebacks contain no contents of records, unless a setting allows it."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest

from streams_py import serdes
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import DeserializationError, StreamsError
from streams_py.runtime.tasks.settings.handlers import log_and_continue, log_and_fail
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.state.stores.codec import StoreCodec
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.topology import Topology
from tests.support.runtime.task_kit import Kit, record

CARD = "4111111111111111"


def as_number(data: bytes) -> int:
    return int(data + b"x")  # the error quotes all of it


def quoted(value: object) -> bytes:
    raise ValueError(f"cannot write {value}")


NUMBER = serdes.serde(serialize=quoted, deserialize=as_number, name="number")


def reading(**settings: object) -> Kit:
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=NUMBER)
    kit = Kit(topology, **settings)  # type: ignore[arg-type]
    kit.add(record(CARD))
    return kit


def test_record_that_cannot_be_read_is_not_shown_when_the_task_stops(caplog: pytest.LogCaptureFixture) -> None:
    kit = reading(deserialization_handler=log_and_fail)
    with pytest.raises(DeserializationError, match="cannot decode 16 bytes") as caught:
        kit.task.process(1)
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "stopping after an error" in shown
    assert CARD not in shown
    assert CARD.encode().hex() not in shown


def test_record_that_is_dropped_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        reading(deserialization_handler=log_and_continue).task.process(1)
    assert "dropping a record" in caplog.text
    assert "dropped record number 1" in caplog.text
    assert CARD not in caplog.text


def test_setting_shows_the_bytes() -> None:
    kit = reading(shows_record_bytes=True)
    with pytest.raises(DeserializationError) as caught:
        kit.task.process(1)
    assert CARD.encode().hex() in str(caught.value)
    config = StreamsConfig.of(application_id="a", bootstrap_servers="x:1", errors_show_record_bytes=True)
    assert TaskSettings.from_config(config).shows_record_bytes
    assert not TaskSettings.from_config(
        StreamsConfig.of(application_id="a", bootstrap_servers="x:1")
    ).shows_record_bytes


def test_value_that_cannot_be_written_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_sink("sink", "out", "source", key=serdes.STRING, value=NUMBER)
    kit = Kit(topology)
    kit.add(record(CARD))
    with pytest.raises(StreamsError, match="number") as caught:
        kit.task.process(1)
    assert CARD not in "".join(traceback.format_exception(caught.value)) + caplog.text


def test_contents_of_a_store_are_not_shown() -> None:
    codec = StoreCodec("app-store-changelog", serdes.STRING, NUMBER)
    for failing in (lambda: codec.value_bytes(CARD), lambda: codec.key_bytes(7)):  # type: ignore[arg-type, return-value]
        with pytest.raises(StreamsError, match="app-store-changelog") as caught:
            failing()
        assert CARD not in "".join(traceback.format_exception(caught.value))


class Failing(Processor[Any, Any, Any, Any]):
    """Raises an error with a text of the application."""

    text = "{}"

    def process(self, record: Record[Any, Any]) -> None:
        raise ValueError(self.text.format(record.value))


@pytest.mark.parametrize("handler", [log_and_fail, log_and_continue])
@pytest.mark.parametrize("quotes", [False, True], ids=["plain text", "text with the value"])
def test_error_of_a_function_of_the_application_has_its_text_and_nothing_else_of_the_record(
    handler: Any, quotes: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is the application's own and needed to find the fault. It is shown whatever it quotes."""
    monkeypatch.setattr(Failing, "text", "no rate for {}" if quotes else "no rate")
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("rates", Failing, "source")
    kit = Kit(topology, processing_handler=handler)
    kit.add(record(CARD, key="4222222222222", headers=[("h", b"4333333333333")]))
    shown = ""
    with caplog.at_level(logging.DEBUG):
        try:
            kit.task.process(1)
        except StreamsError as error:
            shown = "".join(traceback.format_exception(error))
    shown += caplog.text
    assert "no rate" in shown
    assert "rates" in shown
    assert (CARD in shown) is quotes
    assert "4222222222222" not in shown
    assert "4333333333333" not in shown
