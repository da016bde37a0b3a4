"""How much history the newest outputs depend on."""

from __future__ import annotations

from datetime import timedelta

from streams_py import SessionWindows, StreamsBuilder, TimeWindows, Topology, serdes
from streams_py.history.needs import HistoryNeed, history_needed
from tests.support.history.programs import word_count


def counted(windows: TimeWindows | SessionWindows | None) -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    stream = builder.stream("lines")
    if windows is not None:
        stream.group_by_key().windowed_by(windows).count(store="counts")
    return builder.build()


def test_outputs_without_state_need_nothing_older() -> None:
    need = history_needed(counted(None))
    assert need == HistoryNeed(0)
    assert need.since(5_000) == 5_000


def test_windows_need_what_they_keep() -> None:
    minutes = TimeWindows.of(timedelta(minutes=5), grace=timedelta(minutes=1))
    need = history_needed(counted(minutes))
    (store,) = counted(minutes).stores.values()
    assert store.windows is not None
    assert need.before_ms == store.windows.retention_ms >= 360_000
    assert need.since(400_000) == 400_000 - store.windows.retention_ms


def test_what_has_no_end_needs_everything() -> None:
    assert history_needed(word_count()) == HistoryNeed(None, ("counts",))
    sessions = SessionWindows.of(timedelta(minutes=5), grace=timedelta(0))
    assert history_needed(counted(sessions)).since(5_000) is None


def test_what_a_processor_remembers_nobody_knows() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").process(lambda record, context: [record], name="mine").to("out")
    assert history_needed(builder.build()) == HistoryNeed(None, ("mine",))


def test_global_tables_are_filled_whole_whatever_is_read_beside_them() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    names = builder.global_table("names")
    builder.stream("lines").join(names, lambda line, name: line + name, on=lambda key, _: key).to("out")
    assert history_needed(builder.build()) == HistoryNeed(0)


def test_timestamps_of_functions_say_nothing_about_how_old_a_record_is() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines", timestamp_extractor=lambda key, value, at_ms, before_ms: int(value), name="timed").to("out")
    assert history_needed(builder.build()) == HistoryNeed(None, (), ("timed",))
    (source,) = counted(None).subtopologies()[0].sources
    assert history_needed(counted(None), {"default.timestamp.extractor": "use_partition_time"}).retimed == (
        source.name,
    )
    ready_made, own = {"default.timestamp.extractor": "log_and_skip"}, {"default.timestamp.extractor": "my.own:times"}
    assert history_needed(counted(None), ready_made) == HistoryNeed(0)
    assert history_needed(counted(None), own) == HistoryNeed(None, (), (source.name,))
