"""librdkafka's reports: lost connections become one line per outage, the rest is limited."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.errors import StreamsError
from streams_py.system.outages import ClusterContact

REFUSED = (
    "[thrd:b:1/bootstrap]: b:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: refused (after {}ms in state CONNECT)"
)


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def log(time: Time) -> BrokerLog:
    return BrokerLog("app-consumer", "b:1", now_s=time, contact=ClusterContact("b:1", now_s=time))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_connection_that_is_refused_200_times_is_one_line(
    log: BrokerLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for tick in range(200):  # 20 s of 10 reports a second, each worded a little differently
        time.now_s = tick / 10
        log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", REFUSED.format(tick))
        log.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert warnings(caplog) == ["cluster b:1 unreachable for 2 s (refused); retrying"]


@pytest.mark.parametrize(
    ("said", "broker", "reason"),
    [
        ("b:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)",
         "b:1", "Connection refused"),
        ("GroupCoordinator: b:1: Connect to ipv6#[::1]:1 failed: timed out (after 3ms in state CONNECT, 2 identical)",
         "b:1", "timed out"),
        ("sasl_ssl://b:1/3: SSL handshake failed: certificate verify failed (after 9ms in state SSL_HANDSHAKE)",
         "b:1", "SSL handshake failed: certificate verify failed"),
        ("TxnCoordinator: Disconnected while requesting ApiVersion (after 9ms in state APIVERSION_QUERY)", "b:1,b:2",
         "TxnCoordinator: Disconnected while requesting ApiVersion (after 9ms in state APIVERSION_QUERY)"),
    ],
)  # fmt: skip
def test_failure_names_broker_and_reason(
    said: str, broker: str, reason: str, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    contact = ClusterContact("b:1,b:2", now_s=time)
    noted: list[tuple[str, str]] = []
    monkeypatch.setattr(contact, "failed", lambda *args: noted.append(args))
    log = BrokerLog("app-consumer", "b:1,b:2", contact=contact)
    log.log(logging.ERROR, "%s [%s] %s", "FAIL", "n", f"[thrd:x]: {said}")
    assert noted == [(broker, reason)]


def test_other_reports_are_debug_lines_while_the_cluster_is_away(
    log: BrokerLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    log.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    log.log(logging.WARNING, "%s [%s] %s", "REQTMOUT", "n", "[thrd:x]: b:1: Timed out 1 in-flight requests")
    log.on_error(KafkaError(KafkaError._TIMED_OUT, "3 requests timed out"))
    assert warnings(caplog) == []
    time.now_s = 60.0
    log.log(logging.WARNING, "%s [%s] %s", "REQTMOUT", "n", "[thrd:x]: b:1: Timed out 1 in-flight requests")
    assert warnings(caplog) == ["app-consumer: b:1: Timed out 1 in-flight requests"]


def test_producer_that_was_replaced_is_no_warning(log: BrokerLog, caplog: pytest.LogCaptureFixture) -> None:
    """The next call of that producer raises it."""
    said = "Failed to end transaction: Local: This instance has been fenced by a newer instance"
    log.log(logging.ERROR, "%s [%s] %s", "TXNERR", "n", f"[thrd:main]: Fatal transaction error: {said} (_FENCED)")
    log.on_error(KafkaError(KafkaError._FATAL, f"Fatal error: {said}"))
    assert warnings(caplog) == []


def test_repeated_warning_is_logged_at_growing_intervals(
    log: BrokerLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for tick in range(200):
        time.now_s = tick / 10
        log.warn(f"trouble for {tick}ms")
    seen = warnings(caplog)
    assert len(seen) == 5  # at 0, 1, 3, 7 and 15 s
    assert seen[0] == "app-consumer: trouble for 0ms"
    assert seen[1].endswith("(repeated 9 times)")


def test_report_is_new_again_after_a_long_silence(log: BrokerLog, time: Time, caplog: pytest.LogCaptureFixture) -> None:
    log.warn("trouble")
    time.now_s = 300.0
    log.warn("trouble")
    assert warnings(caplog) == ["app-consumer: trouble"] * 2


def test_connection_life_is_no_warning(log: BrokerLog, caplog: pytest.LogCaptureFixture) -> None:
    log.log(logging.INFO, "%s [%s] %s", "FAIL", "n", "[thrd:x]: b:1: Disconnected")
    assert warnings(caplog) == []


def test_coordinator_that_still_loads_is_no_warning(log: BrokerLog, caplog: pytest.LogCaptureFixture) -> None:
    said = "Failed to acquire idempotence PID from broker b:1/1: Broker: Coordinator load in progress: retrying"
    log.log(logging.WARNING, "%s [%s] %s", "GETPID", "n", f"[thrd:main]: {said}")
    assert warnings(caplog) == []


def test_refused_login_is_raised_by_check(log: BrokerLog) -> None:
    log.on_error(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: wrong password"))
    with pytest.raises(StreamsError, match=r"b:1 refused the login: .*check sasl\.mechanism"):
        log.check()


@pytest.mark.parametrize(
    "said",
    [
        "SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's supported mechanisms: (n/a)",
        "SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure (after 0ms)",
        "SASL authentication error: SaslAuthenticateRequest failed: Local: Timed out (after 9ms in state AUTH_REQ)",
        "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception",
        'SASL authentication error: {"status":"invalid_token"} (after 107ms in state AUTH_REQ)',
        "SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL state: broker's ...",
    ],
)
def test_login_that_a_lost_connection_broke_off_is_not_refused(log: BrokerLog, said: str) -> None:
    log.on_error(KafkaError(KafkaError._AUTHENTICATION, said))
    log.check()
    assert log.connections_lost == 1


def test_mechanism_that_the_broker_does_not_have_is_a_refused_login(log: BrokerLog) -> None:
    log.on_error(
        KafkaError(
            KafkaError._AUTHENTICATION,
            "SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms: "
            "SCRAM-SHA-512",
        )
    )
    with pytest.raises(StreamsError, match="Unsupported SASL mechanism"):
        log.check()
