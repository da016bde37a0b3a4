"""Few log lines while a broker is away."""

from __future__ import annotations

import inspect
import logging

import kafka.cluster
import kafka.net.selector
import pytest

from streams_py.adapters.kafka_python import quiet_logs
from streams_py.adapters.kafka_python.quiet_logs import Outage, limit_library_logs


class FakeTime:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(quiet_logs, "time", fake)
    return fake


def test_library_warning_of_one_place_passes_once_in_half_a_minute(clock, caplog):
    limit_library_logs()
    limit_library_logs()
    library = logging.getLogger("kafka.net.manager")
    for second in range(61):
        clock.now = 10_000.0 + second
        library.warning("connection failed, attempt %d", second)
    assert [record.args for record in caplog.records] == [(0,), (30,), (60,)]


def test_everyday_lines_of_the_library_do_not_pass(clock, caplog):
    """The lines are the library's own: one that it no longer has would be dead wood here."""
    limit_library_logs()
    source = inspect.getsource(kafka.cluster)
    for line in quiet_logs._EVERYDAY:
        assert f'log.error("{line}"' in source
        logging.getLogger("kafka.cluster").error(line, "app-counts-changelog")
    assert quiet_logs._SLOW in inspect.getsource(kafka.net.selector)
    logging.getLogger("kafka.net.selector").warning(f"Task ran for 0.136s. It is {quiet_logs._SLOW} -- likely a loop")
    assert caplog.records == []


@pytest.fixture
def library_log(monkeypatch):
    """kafka-python's log as an application finds it that has set no level for it."""
    log = logging.getLogger("kafka")
    before = log.level
    log.setLevel(logging.NOTSET)
    yield log
    log.setLevel(before)


def test_library_info_does_not_pass_by_default(clock, caplog, library_log):
    caplog.set_level(logging.INFO)
    limit_library_logs()
    logging.getLogger("kafka.net.manager").info("connected")
    logging.getLogger("kafka.coordinator").info("joined")
    assert caplog.records == []


def test_library_info_always_passes_when_the_application_asks_for_it(clock, caplog, library_log):
    caplog.set_level(logging.INFO)
    library_log.setLevel(logging.INFO)
    limit_library_logs()
    for _ in range(3):
        logging.getLogger("kafka.net.manager").info("connected")
    assert len(caplog.records) == 3


def test_outage_warns_at_growing_intervals_and_says_when_it_is_over(clock, caplog):
    outage = Outage("group g at b:1")
    start = clock.now
    for tenth in range(3000):
        clock.now = start + tenth / 10
        outage.goes_on()
    at = [record.args[1] for record in caplog.records]
    assert at == pytest.approx([2, 6, 14, 30, 62, 122, 182, 242], abs=0.2)
    outage.is_over()
    assert caplog.messages[-1] == "group g at b:1: back after 300 s"


def test_outage_says_nothing_when_it_was_short(clock, caplog):
    outage = Outage("group g at b:1")
    outage.goes_on()
    clock.now += 1
    outage.goes_on()
    outage.is_over()
    assert caplog.records == []
