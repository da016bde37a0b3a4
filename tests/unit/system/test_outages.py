"""One log line per outage of a cluster, whatever number of clients reports it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from streams_py.system.outages import ClusterContact, MemberContact, contact_with, level_of_waiting


class Time:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def contact(time: Time, caplog: pytest.LogCaptureFixture) -> ClusterContact:
    caplog.set_level(logging.INFO)
    return ClusterContact("b:1", now_s=time)


def seconds(time: Time, count: float, step_s: float = 0.5) -> Iterator[float]:
    began_s = time.now_s
    while time.now_s < began_s + count:
        yield time.now_s - began_s
        time.now_s += step_s


def test_outage_of_33_s_that_all_clients_of_4_threads_report_is_one_warning_and_one_end(
    contact: ClusterContact, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in seconds(time, 33):
        for thread in range(4):
            contact.no_answer(f"member-{thread}")
            for client in ("consumer", "producer", "restore-consumer"):
                contact.failed("b:1", "Connection refused")
                contact.all_down(f"{client}-{thread}")
    for thread in range(4):
        contact.answered(f"member-{thread}")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "cluster b:1 unreachable for 2 s (Connection refused); no record is lost; retrying"),
        ("INFO", "cluster b:1 reachable again after 33 s"),
    ]


def test_long_outage_is_repeated_at_doubling_intervals(
    contact: ClusterContact, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in seconds(time, 1_800):
        contact.no_answer("member")
    said = [record.getMessage().split(" for ")[1].split(" s ")[0] for record in caplog.records]
    assert said == ["2", "62", "182", "422", "902", "1502"]
    assert "(the group coordinator does not answer)" in caplog.text


def test_short_outage_is_not_logged(contact: ClusterContact, time: Time, caplog: pytest.LogCaptureFixture) -> None:
    for _ in seconds(time, 1.5):
        contact.no_answer("member")
        contact.failed("b:1", "Connection refused")
        contact.all_down("consumer")
    contact.answered("member")
    assert caplog.records == []


def test_outage_lasts_until_the_last_member_has_contact(
    contact: ClusterContact, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in seconds(time, 5):
        contact.no_answer("one")
        contact.no_answer("other")
    contact.answered("one")
    assert len(caplog.records) == 1
    time.now_s += 5
    contact.answered("other")
    assert caplog.messages[-1] == "cluster b:1 reachable again after 10 s"


def test_closed_member_does_not_keep_an_outage_alive(contact: ClusterContact, time: Time) -> None:
    for _ in seconds(time, 5):
        contact.no_answer("member")
    contact.forget("member")
    time.now_s += 60
    assert not contact.is_in_trouble


def test_second_outage_is_counted_from_its_own_start(
    contact: ClusterContact, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in seconds(time, 5):
        contact.no_answer("member")
    contact.answered("member")
    time.now_s += 1_000
    for _ in seconds(time, 3):
        contact.no_answer("member")
    assert "for 2 s" in caplog.messages[-1]


def test_clients_without_a_member_report_an_outage(
    contact: ClusterContact, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """A Spark reader or a command-line tool: whether records can be lost is not known here."""
    for _ in seconds(time, 33):
        contact.failed("b:1", "Connection refused")
        contact.all_down("consumer")
    assert caplog.messages == ["cluster b:1 unreachable for 2 s (Connection refused); retrying"]
    time.now_s += 11
    assert not contact.is_in_trouble


def test_old_reports_that_come_late_are_no_outage(
    contact: ClusterContact, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka queues reports until the client is used: the admin client's may be minutes old."""
    for elapsed in seconds(time, 60):
        contact.answered("member")
        if elapsed % 5 == 0:
            for _ in range(1_000):
                contact.failed("b:1", "Connection refused")
                contact.all_down("admin")
            assert not contact.is_in_trouble
        if elapsed >= 8:
            break
    assert caplog.records == []


def test_broker_that_clients_need_and_that_is_away_gets_a_line_of_its_own(
    contact: ClusterContact, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in seconds(time, 33):
        contact.answered("member")
        for _client in range(8):
            contact.failed("b:2", "Connection refused")
    assert caplog.messages == [
        "broker b:2 of cluster b:1 unreachable for 10 s (Connection refused); the other brokers answer; retrying"
    ]


def test_broker_that_is_away_for_a_moment_now_and_then_gets_no_line(
    contact: ClusterContact, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        contact.failed("b:2", "Disconnected")
        time.now_s += 11
    assert caplog.records == []


def test_member_that_waits_is_asked_to_check_at_growing_intervals(monkeypatch: pytest.MonkeyPatch, time: Time) -> None:
    monkeypatch.setattr("streams_py.system.outages.time.monotonic", time)
    member = MemberContact("nowhere:1", "member")
    checked = [elapsed for elapsed in seconds(time, 200) if member.report_lost()]
    assert checked == pytest.approx([2, 6, 14, 30, 62, 122, 182], abs=1)
    member.close()
    assert not member.report_lost()


def test_lines_about_waiting_go_to_debug_while_a_cluster_is_away() -> None:
    one = contact_with("elsewhere:2,elsewhere:1")
    assert contact_with(["elsewhere:1", "elsewhere:2"]) is one
    assert level_of_waiting() == logging.WARNING
    one.no_answer("member")
    assert level_of_waiting() == logging.DEBUG
    one.forget("member")
    assert level_of_waiting() == logging.WARNING


def test_what_fails_right_after_an_outage_is_part_of_it(contact: ClusterContact, time: Time) -> None:
    for _ in seconds(time, 5):
        contact.no_answer("member")
    contact.answered("member")
    assert contact.is_in_trouble
    time.now_s += 6
    assert not contact.is_in_trouble
