"""Connection trouble is told once, then with back-off."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.errors import StreamsError

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
    return BrokerLog("app-consumer", "b:1", now_s=time)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_repeated_report_is_warned_with_growing_intervals(
    log: BrokerLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for tick in range(200):  # 20 s of 10 reports a second, each worded a little differently
        time.now_s = tick / 10
        log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", REFUSED.format(tick))
    seen = warnings(caplog)
    assert len(seen) == 5  # at 0, 1, 3, 7 and 15 s
    assert seen[0] == "app-consumer: " + REFUSED.format(0).split("]: ")[1]
    assert seen[1].endswith("(9 more like this)")


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


def test_all_brokers_down_names_the_address(log: BrokerLog, caplog: pytest.LogCaptureFixture) -> None:
    log.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    log.check()
    assert warnings(caplog) == ["app-consumer: no broker of b:1 can be reached; trying again"]


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
