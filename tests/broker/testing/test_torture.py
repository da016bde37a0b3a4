"""The judge of a torture run on a real broker: it hears everything, and finds nothing where nothing is wrong."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from streams_py.adapters.connection.handshake import refusal
from streams_py.adapters.security.settings import parse_security
from streams_py.cli.commands import app
from streams_py.cli.development import torturing
from streams_py.testing.broker import Broker, NoBrokerError, Right, SecuredBroker
from streams_py.testing.broker.login import LoginBroker
from streams_py.testing.torture import Plan, Torture
from streams_py.testing.torture.history import Entry, History, entry_bytes
from streams_py.testing.torture.lost_commits import LostCommits, committed_offsets
from streams_py.testing.torture.records import Feeder, Reader
from tests.support.waiting import until

pytestmark = pytest.mark.broker

SHORT = "torture --minutes 0.1 --instances 1 --rate 300 --seed 3 --at-least-once".split()


@pytest.fixture
def connection(kafka_broker: Broker) -> dict[str, Any]:
    return {"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0}


def write(connection: dict[str, Any], topic: str, value: bytes, partition: int) -> None:
    producer = Producer(connection)
    producer.produce(topic, value, b"key", partition)
    assert producer.flush(60) == 0


def test_output_is_heard_from_every_partition_when_no_broker_knows_the_topic_yet(
    kafka_broker: Broker, connection: dict[str, Any]
) -> None:
    topic, history = f"heard-{uuid4()}", History(exact=True)
    reader = Reader(connection, topic, 3, history)
    kafka_broker.create_topic(topic, 3)
    for number in range(3):
        write(connection, topic, entry_bytes(Entry(number, (number + 1,), f"writer-{number}@0")), number)
    until(lambda: history.seen == 3, "all records")
    reader.stop()


def test_feeder_waits_for_an_application_that_is_behind_and_makes_up_for_nothing(
    kafka_broker: Broker, connection: dict[str, Any]
) -> None:
    topic, done = f"fed-{uuid4()}", 0
    kafka_broker.create_topic(topic, 1)
    feeder = Feeder(connection, topic, keys=3, rate=1_000, ahead_max=50, done=lambda: done)
    feeder.start()
    until(lambda: feeder.total == 50, "as many records as may wait")
    time.sleep(1)
    assert feeder.total == 50
    began, done = time.monotonic(), 1_000_000
    until(lambda: feeder.total > 50, "more records")
    time.sleep(0.2)
    feeder.stop()
    assert feeder.total <= 50 + 1_000 * (time.monotonic() - began) + 1_000 * 0.1


def test_output_that_cannot_be_read_is_said_immediately(kafka_broker: Broker, connection: dict[str, Any]) -> None:
    topic = f"odd-{uuid4()}"
    kafka_broker.create_topic(topic, 1)
    reader = Reader(connection, topic, 1, History(exact=True))
    write(connection, topic, b"nonsense", 0)

    def is_said() -> bool:
        try:
            reader.check()
        except RuntimeError as error:
            return "could not be read" in str(error)
        return False

    until(is_said, "the reader's problem")
    with pytest.raises(RuntimeError, match="could not be read"):
        reader.stop()


@pytest.mark.parametrize(
    "exact",
    [True, pytest.param(False, marks=pytest.mark.weekly)],  # the command's test below is of at-least-once
    ids=["exactly once", "at least once"],
)
def test_stages_with_different_partition_counts_are_judged_clean_when_nothing_is_wrong(
    connection: dict[str, Any], tmp_path: Path, exact: bool
) -> None:
    faults = {"cut": 1, "delay": 1, "stall": 1}
    plan = Plan(
        exact=exact, instances=1, partitions=(2, 3), keys=30, rate=500, faults=faults, pace_s=1, session_ms=3_000
    )
    result = Torture(plan, connection, tmp_path).run()
    assert result.ok, "\n".join([*map(str, result.violations), *result.deaths])
    assert result.records > 0
    assert result.faults == faults
    assert result.left_out == ["memory and open files were not checked: no measurements over a long enough time"]
    assert (tmp_path / "run.txt").read_text().count(" records\n") == 3


def test_commits_that_went_back_are_seen_from_outside(kafka_broker: Broker, connection: dict[str, Any]) -> None:
    topic, group = f"committed-{uuid4()}", f"group-{uuid4()}"
    kafka_broker.create_topic(topic, 2)
    consumer = Consumer({**connection, "group.id": group})
    commits = LostCommits(committed_offsets(connection, group, {topic: 2}))
    said: list[str] = []

    def commit_and_look(offset: int, times_s: range) -> None:
        consumer.commit(offsets=[TopicPartition(topic, 1, offset)], asynchronous=False)
        for now_s in times_s:
            said.extend(filter(None, [commits.check(now_s)]))
            time.sleep(0.1)

    commit_and_look(40, range(20))
    commit_and_look(41, range(20, 40))
    assert said == []
    commit_and_look(7, range(40, 80))
    assert set(said) == {f"committed offsets of 1 partitions moved backwards: {topic}-1 from 41 to 7"}
    commits.close()
    consumer.close()


@pytest.mark.weekly
def test_instance_whose_disk_is_full_ends_for_that_and_continues_when_there_is_space(
    connection: dict[str, Any], tmp_path: Path
) -> None:
    plan = Plan(instances=2, partitions=(2,), keys=30, rate=500, faults={"full": 1}, pace_s=1)
    torture = Torture(plan, connection, tmp_path)
    try:
        result = torture.run()
    except ValueError as error:
        pytest.skip(f"no small disk may be mounted here: {error}")
    assert result.ok, "\n".join([*map(str, result.violations), *result.deaths])
    assert result.faults == {"full": 1}
    assert "No space left on device" in (tmp_path / "instance-2" / "log.txt").read_text()


@pytest.mark.weekly
def test_instances_that_are_refused_may_end_and_continue_when_they_may_log_in_again(tmp_path: Path) -> None:
    try:
        broker = LoginBroker()
    except NoBrokerError as error:
        pytest.skip(f"no broker with a login: {error}")
    try:
        plan = Plan(instances=2, partitions=(2,), keys=30, rate=500, faults={"login": 1}, pace_s=1)
        plain = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        result = Torture(plan, plain, tmp_path, login=broker).run()
    finally:
        broker.close()
    assert result.ok, "\n".join([*map(str, result.violations), *result.deaths])
    assert result.faults == {"login": 1}


def test_fault_that_cannot_be_done_is_an_error_before_anything_is_done(
    connection: dict[str, Any], tmp_path: Path
) -> None:
    plan = Plan(instances=1, partitions=(2,), keys=30, rate=500, faults={"outage": 1})
    with pytest.raises(ValueError, match="faults not possible here: outage"):
        Torture(plan, connection, tmp_path).run()


def test_command_says_that_everything_held_and_what_was_left_out(connection: dict[str, Any]) -> None:
    arguments = [*SHORT, "--bootstrap", connection["bootstrap.servers"]]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    assert "all checks passed" in result.output
    assert "seed 3: " in result.output
    for left_out in ("no broker faults", "no login faults", "memory and open files were not checked"):
        assert left_out in result.output


def test_command_logs_in_as_its_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        broker = LoginBroker()
    except NoBrokerError as error:
        pytest.skip(f"no broker with a login: {error}")
    monkeypatch.setattr(torturing, "tempfile", SimpleNamespace(mkdtemp=lambda prefix: str(tmp_path)))
    kept = SimpleNamespace(rmtree=lambda *_, **__: None)  # what it leaves is looked at
    monkeypatch.setattr(torturing, "shutil", kept)
    arguments = [*SHORT, "--bootstrap", broker.address, "--config", str(tmp_path / "login.properties")]
    try:
        (tmp_path / "login.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in broker.settings.items())
        )
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
        broker.remove_user()
        login = parse_security(broker.settings)
        until(lambda: refusal(broker.address, login) is not None, "the broker to have forgotten the user")
        refused = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    finally:
        broker.close()
    assert result.exit_code == 0, result.output
    assert "all checks passed" in result.output
    assert (refused.exit_code, "refused the login" in refused.stderr) == (2, True)
    (tmp_path / "login.properties").unlink()
    secret = broker.settings["sasl.password"]
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


def test_encrypted_connections_are_left_alone_and_that_is_said(
    secured_kafka_broker: SecuredBroker, tmp_path: Path
) -> None:
    user = f"tortured-{uuid4().hex}"
    keys = secured_kafka_broker.add_user(user, "scram-marker-5ecret")
    kinds = ("TOPIC", "GROUP", "TRANSACTIONAL_ID")
    secured_kafka_broker.allow(user, {Right("ALL", kind, "torture-", prefixed=True) for kind in kinds})
    door = {"bootstrap.servers": keys.pop("bootstrap.servers")}
    plan = Plan(instances=1, partitions=(2,), keys=30, rate=500, faults={"stutter": 1}, pace_s=1)
    result = Torture(plan, door, tmp_path, security=keys).run()
    assert result.ok, "\n".join([*map(str, result.violations), *result.deaths])
    assert result.left_out[0] == "no connection faults (cut, delay, stall): they need a proxy, which cannot read TLS"
    with pytest.raises(ValueError, match="faults not possible here: cut; no connection faults"):
        Torture(replace(plan, faults={"cut": 1}), door, tmp_path, security=keys).run()


def test_command_refuses_the_embedded_cluster() -> None:
    result = CliRunner().invoke(app, ["torture", "--bootstrap", "embedded"])
    assert result.exit_code == 2
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("the embedded cluster has no transactions")


def test_command_ends_with_2_when_no_cluster_answers() -> None:
    result = CliRunner().invoke(app, ["torture", "--bootstrap", "127.0.0.1:1", "--minutes", "0.1"])
    assert result.exit_code == 2
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("no broker answers at 127.0.0.1:1 (")
