"""kafka-python's log lines: few, and about what an operator can act on."""

from __future__ import annotations

import inspect
import logging

import kafka.cluster
import kafka.coordinator.base
import kafka.net.selector
import pytest
from kafka import errors as kafka_errors

from streams_py.adapters.kafka_python import quiet_logs
from streams_py.adapters.kafka_python.quiet_logs import limit_library_logs


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
    library = logging.getLogger("kafka.coordinator")
    for second in range(61):
        clock.now = 10_000.0 + second
        library.warning("a strange answer, attempt %d", second)
    assert [record.args for record in caplog.records] == [(0,), (30,), (60,)]


def test_everyday_lines_of_the_library_do_not_pass(clock, caplog):
    """The lines are the library's own: one that it no longer has would be dead wood here."""
    limit_library_logs()
    source = inspect.getsource(kafka.cluster)
    for line in quiet_logs._EVERYDAY:  # texts of another library
        assert f'log.error("{line}"' in source
        logging.getLogger("kafka.cluster").error(line, "app-counts-changelog")
    slow = quiet_logs._SLOW  # a text of another library
    assert slow in inspect.getsource(kafka.net.selector)
    logging.getLogger("kafka.net.selector").warning(f"Task ran for 0.136s. It is {slow} -- likely a loop")
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


def test_connections_that_are_lost_or_refused_are_debug_lines(caplog, library_log):
    """One line per outage is logged elsewhere; these came several per second, some with tracebacks."""
    caplog.set_level(logging.INFO)
    limit_library_logs()
    refused = kafka_errors.KafkaConnectionError("111 ECONNREFUSED")
    logging.getLogger("kafka.net.transport").error("%s: socket disconnected", "<transport>")
    logging.getLogger("kafka.net.connection").error("%s: Connection lost: %s", "<connection>", refused)
    logging.getLogger("kafka.net.manager").warning("Bootstrap %s not ready; waiting %.2f secs", "bootstrap-0", 0.1)
    logging.getLogger("kafka.cluster").error("Metadata refresh: failed %s", refused)
    logging.getLogger("kafka.coordinator").error("Error sending %s to node %s [%s]", "HeartbeatRequest", 1, refused)
    logging.getLogger("kafka.coordinator").warning(
        "Marking the coordinator dead (node %s) for group %s: %s.", 1, "g", refused
    )
    for name, error in (("kafka.net.transport", ConnectionResetError(104, "reset")), ("kafka.net.selector", refused)):
        try:
            raise error
        except Exception:
            logging.getLogger(name).exception("Unhandled exception in task %s:", "<task>")
    assert caplog.records == []
    library_log.setLevel(logging.DEBUG)
    logging.getLogger("kafka.net.transport").error("%s: socket disconnected", "<transport>")
    assert [record.levelname for record in caplog.records] == []  # the handler's level is INFO
    caplog.set_level(logging.DEBUG, "kafka")
    logging.getLogger("kafka.net.transport").error("%s: socket disconnected", "<transport>")
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


def test_errors_that_are_not_about_connections_pass(caplog, library_log):
    limit_library_logs()
    logging.getLogger("kafka.net.connection").error("%s: SaslHandshake failed: %s", "<connection>", "Unsupported")
    logging.getLogger("kafka.cluster").error("Topic %s is not authorized for this client", "orders")
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        logging.getLogger("kafka.net.selector").exception("Unhandled exception in task %s:", "<task>")
    assert len(caplog.records) == 3


def test_removed_member_is_told_in_words_of_its_group(clock, caplog, library_log):
    limit_library_logs()
    logging.getLogger("kafka.coordinator.heartbeat").warning(
        "Heartbeat: local member_id was not recognized; this consumer needs to re-join"
    )
    assert caplog.messages[0].startswith("the group coordinator has removed this member from its group")
    assert "local member_id" not in caplog.text


def test_leaving_a_group_that_has_removed_the_member_is_no_error(clock, caplog, library_log):
    limit_library_logs()
    log = logging.getLogger("kafka.coordinator")
    unknown = kafka_errors.UnknownMemberIdError()
    log.error("LeaveGroup request for member %s / group instance %s failed with error: %s", "m", None, unknown)
    log.error("LeaveGroup request for group %s failed with error: %s", "g", unknown)
    assert caplog.records == []
    log.error("LeaveGroup request failed: %s", kafka_errors.RequestTimedOutError("no answer"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the group keeps the member's tasks" in caplog.text


def test_beginnings_of_lines_are_the_library_s_own():
    """A line that the library no longer has would be dead wood here."""
    source = inspect.getsource(kafka.coordinator.base)
    # Texts of another library.
    for beginning in (*quiet_logs._OWN_HANDLING, *quiet_logs._REWORDED, quiet_logs._LEFT):
        assert beginning in source, beginning
