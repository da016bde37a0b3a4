"""Invalid arguments of a client are rejected in its constructor, before anything starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams_py import ConfigError, KafkaStreams, StreamsBuilder, TopologyError, serdes
from streams_py.ports import Admin, AdminError, AdminErrorKind
from streams_py.runtime.wiring.missing_topics import warn_of_missing_sinks


def builder() -> StreamsBuilder[str, str]:
    made = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    made.stream("in").to("out")
    return made


def client(tmp_path: Path, topology: Any = None, **settings: Any) -> KafkaStreams:
    config = {"application.id": "app", "bootstrap.servers": "localhost:1", "state.dir": str(tmp_path)}
    return KafkaStreams(topology or builder().build(), config, **settings)


def test_builder_instead_of_a_topology_is_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(
        TopologyError, match=r"takes a Topology, not a StreamsBuilder; pass builder.build\(\) \(.*test_arg"
    ):
        client(tmp_path, builder())


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ({"on_state": "loudly"}, r"on_state is of type str, not a function of \(new state, old state\)"),
        ({"on_state": lambda new: None}, r"on_state is called with 2 arguments"),
        ({"on_error": lambda: None}, r"on_error is called with 1 argument, \(error\)"),
        (
            {"standby_listener": "loud"},
            r"standby_listener is of type str, without on_update_start; pass a subclass of S",
        ),
        ({"restore_listener": lambda *_: None}, r"restore_listener is of type function, without on_restore_start"),
    ],
)
def test_callback_that_cannot_be_called_is_refused(tmp_path: Path, callback: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        client(tmp_path, **callback)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"consumer_fetch_min_bytes": "abc"}, "fetch.min.bytes = 'abc' is not valid"),
        ({"producer_nonsense": "1"}, "nonsense is not a setting"),
        ({"session_timeout_ms": "x"}, "session.timeout.ms='x' is not valid"),
        ({"admin_request_timeout_ms": "x"}, "request.timeout.ms = 'x'"),
        ({"deserialization_exception_handler": "log_and_contine"}, "did you mean 'log_and_continue'?"),
        ({"default_timestamp_extractor": "wall_clok_time"}, "did you mean"),
    ],
)
def test_setting_that_a_client_would_refuse_later_is_refused_now(tmp_path: Path, setting: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client(tmp_path, **setting)
    assert message in str(caught.value)


def test_missing_serde_is_found_when_the_client_is_made(tmp_path: Path) -> None:
    bare = StreamsBuilder()
    bare.stream("in").to("out")
    with pytest.raises(ConfigError, match=r"which reads in, has no key serde \(.*test_arguments.py:"):
        client(tmp_path, bare.build())


def test_missing_sink_topic_is_warned_about_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[Any] = []

    def describe_topics(names: list[str]) -> dict[str, AdminError]:
        asked.extend(names)
        return {name: AdminError(AdminErrorKind.UNKNOWN_TOPIC, "none") for name in names}

    admin: Any = SimpleNamespace(describe_topics=describe_topics)
    thread = warn_of_missing_sinks(builder().build(), admin)
    assert thread is not None
    thread.join()
    assert asked == ["out"]
    (logged,) = [record.message for record in caplog.records]
    assert logged.startswith("topic out, which KSTREAM-SINK-0000000001 writes to (")
    assert "test_arguments.py:" in logged


def test_nobody_is_asked_when_nothing_is_written() -> None:
    silent = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    silent.stream("in").foreach(print)
    nobody: Admin = SimpleNamespace()  # type: ignore[assignment]  # a call would fail
    assert warn_of_missing_sinks(silent.build(), nobody) is None
