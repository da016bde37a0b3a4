"""``streams-py topics | produce | consume`` on a cluster that records can be written to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from streams_py import StreamsBuilder, TimeWindows, serdes
from streams_py.cli.commands import app
from streams_py.testing import TopologyTestDriver
from streams_py.testing.broker import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker()
    broker.create_topic("lines", 2)
    yield broker
    broker.close()


def run(broker: EmbeddedBroker, *arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"BOOTSTRAP": broker.url}, input=given)


def test_records_of_every_kind_come_back_as_they_were_written(broker: EmbeddedBroker) -> None:
    for number, (key, value, line, expected) in enumerate(
        [
            ("string", "int64", "a:-7", "a\t-7"),
            ("int32", "json", '5:{"n": [1, null]}', '5\t{"n": [1, null]}'),
            (
                "uuid",
                "float64",
                "00112233-4455-6677-8899-aabbccddeeff:1.5",
                "00112233-4455-6677-8899-aabbccddeeff\t1.5",
            ),
            ("bool", "bytes", "true:x:y", "True\tb'x:y'"),
        ]
    ):
        topic = f"kind-{number}"
        assert run(broker, "topics", "--create", topic, "--partitions", "3").exit_code == 0
        written = run(broker, "produce", topic, "--key", key, "--value", value, line)
        assert (written.exit_code, written.stderr) == (0, f"1 record written to {topic}\n")
        read = run(broker, "consume", topic, "--key", key, "--value", value)
        assert (read.exit_code, read.stdout) == (0, f"{expected}\n")


@pytest.mark.parametrize(
    ("key", "given", "options", "expected"),
    [
        ("window-string", "[a:b@60000]", ["--window-size", "1000"], "[a:b@60000/61000]"),
        ("window-int32", "7@-5", [], "[7@-5]"),
        ("session-string", "[a@100/250]", [], "[a@100/250]"),
        (
            "stored-window-uuid",
            "00112233-4455-6677-8899-aabbccddeeff@9",
            [],
            "[00112233-4455-6677-8899-aabbccddeeff@9]",
        ),
    ],
    ids=lambda value: value.partition("-")[0] if isinstance(value, str) else None,
)
def test_keys_within_windows_come_back_as_they_were_written(
    broker: EmbeddedBroker, key: str, given: str, options: list[str], expected: str
) -> None:
    topic = f"of-{key}"
    broker.create_topic(topic, 1)
    written = run(broker, "produce", topic, "--key", key, "--value", "int64", "--separator", "=", f"{given}=1")
    assert (written.exit_code, written.stderr) == (0, f"1 record written to {topic}\n")
    read = run(broker, "consume", topic, "--key", key, "--value", "int64", *options)
    assert (read.exit_code, read.stdout) == (0, f"{expected}\t1\n")


def test_all_topics_of_a_windowed_application_can_be_read(broker: EmbeddedBroker) -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    counts = builder.stream("clicks").group_by_key().windowed_by(TimeWindows.of(60_000)).count(store="per-minute")
    counts.to_stream().to("minutes")
    users = builder.table("users", store="users")
    users.group_by(lambda user, town: (town, user), name="towns").count(store="towns").to_stream().to("town-sizes")
    written: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        driver.input_topic("clicks", key=serdes.STRING, value=serdes.STRING).send("ann", "x", timestamp_ms=61_000)
        driver.input_topic("users", key=serdes.STRING, value=serdes.STRING).send("ann", "Oslo", timestamp_ms=0)
        driver.input_topic("users", key=serdes.STRING, value=serdes.STRING).send("ann", "Bergen", timestamp_ms=1)
        for topic in ("minutes", "app-per-minute-changelog", "app-towns-repartition"):
            records = driver.output_topic(topic, key=serdes.BYTES, value=serdes.BYTES).read_all()
            written[topic] = [(record.key, record.value) for record in records]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for topic, pairs in written.items():
        broker.create_topic(topic, 1)
        for pair in pairs:
            producer.produce(topic, pair[1], pair[0], 0)
    assert producer.flush(30) == 0
    at = ["--key", "window-string", "--value", "int64", "--window-size", "60000"]
    assert run(broker, "consume", "minutes", *at).stdout == "[ann@60000/120000]\t1\n"
    stored = run(broker, "consume", "app-per-minute-changelog", "--key", "stored-window-string", "--value", "int64")
    assert stored.stdout == "[ann@60000]\t1\n"
    changes = run(broker, "consume", "app-towns-repartition", "--value", "change-string")
    assert changes.stdout.splitlines() == ["Oslo\tann <- nothing", "Oslo\tnothing <- ann", "Bergen\tann <- nothing"]


def test_details_and_json_tell_where_and_when_a_record_is(broker: EmbeddedBroker) -> None:
    broker.create_topic("told", 1)
    run(broker, "produce", "told", "--key", "string", "--value", "json", 'a:{"n": 1}')
    (line,) = run(broker, "consume", "told", "--value", "json", "--details").stdout.splitlines()
    at, time, key, value = line.split("\t")
    assert (at, key, value) == ("0:0", "a", '{"n": 1}')
    assert time.endswith("Z")
    told = json.loads(run(broker, "consume", "told", "--value", "json", "--json").stdout)
    assert datetime.fromisoformat(time).timestamp() * 1000 == pytest.approx(told.pop("timestamp"), abs=1)
    assert told == {"topic": "told", "partition": 0, "offset": 0, "headers": [], "key": "a", "value": {"n": 1}}
    raw = json.loads(run(broker, "consume", "told", "--key", "bytes", "--value", "bytes", "--json").stdout)
    assert raw["key"] == {"base64": "YQ=="}


def test_standard_input_is_written_line_by_line_and_counted(broker: EmbeddedBroker) -> None:
    broker.create_topic("piped", 1)
    assert run(broker, "produce", "piped", given="one\ntwo words\n").exit_code == 0
    assert run(broker, "consume", "piped").stdout == "null\tone\nnull\ttwo words\n"
    assert run(broker, "consume", "piped", "--limit", "1").stdout == "null\tone\n"
    assert ["piped", "1", "2"] in [line.split() for line in run(broker, "topics").stdout.splitlines()]


def test_one_wrong_argument_and_nothing_is_written(broker: EmbeddedBroker) -> None:
    broker.create_topic("whole", 1)
    refused = run(broker, "produce", "whole", "--value", "int64", "1", "x", "3")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "'x' is not a valid int64" in refused.stderr
    assert run(broker, "consume", "whole", "--value", "int64").stdout == ""


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"1\r\n2\nx\n4\n", "'x' is not a valid int64"),
        (b"1\n2\n\xff\n", r"b'\xff\n' is not valid UTF-8 text"),
        (b"1\n2\n99999999999999999999", "int64"),
    ],
    ids=["other serde", "no text", "out of range"],
)
def test_wrong_line_is_named_with_what_is_written_already(broker: EmbeddedBroker, given: bytes, why: str) -> None:
    topic = f"until-{len(given)}"
    broker.create_topic(topic, 1)
    done = CliRunner().invoke(app, ["produce", topic, "--value", "int64"], env={"BOOTSTRAP": broker.url}, input=given)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("line 3: ")
    assert why in done.stderr
    assert done.stderr.endswith("; 2 records before it are written\n")
    assert run(broker, "consume", topic, "--value", "int64").stdout == "null\t1\nnull\t2\n"


@pytest.mark.parametrize("command", [["consume", "line"], ["produce", "line", "x"]], ids=lambda command: command[0])
def test_slip_in_a_name_is_refused_with_the_nearest_one_and_creates_no_topic(
    broker: EmbeddedBroker, command: list[str]
) -> None:
    refused = run(broker, *command)
    assert refused.exit_code == 2
    assert refused.stderr == "topic line does not exist; did you mean lines?\n"
    assert "line" not in [shown.split()[0] for shown in run(broker, "topics").stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["produce", "lines", "--value", "int46", "1"], "did you mean 'int64'?"),
        (["produce", "lines", "--value", "int64", "one"], "'one' is not a valid int64"),
        (["produce", "lines", "--key", "string", "one"], "with --key a line is KEY:VALUE"),
        (["produce", "lines", "--key", "session-string", "a@7:x"], "expected KEY@START/END"),
        (["produce", "lines", "--key", "window-string", "a:x"], "expected KEY@START"),
        (["produce", "lines", "--value", "change-string", "x"], "only the application can write changes"),
        (["consume", "lines", "--key", "change-string"], "is not a form of keys"),
        (["topics", "--create", "a/b"], "'a/b' is not a valid topic name"),
        (["consume", "lines", "--key", "window-strnig"], "did you mean 'string'?"),
        (["consume", "lines", "--bootstrap", "nowhere"], "bootstrap.servers = 'nowhere' is not valid"),
    ],
)
def test_wrong_use_is_one_sentence_and_2(broker: EmbeddedBroker, arguments: list[str], why: str) -> None:
    refused = run(broker, *arguments)
    assert refused.exit_code == 2
    assert why in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_value_of_another_serde_names_the_record_and_the_remedy(broker: EmbeddedBroker) -> None:
    broker.create_topic("text", 1)
    run(broker, "produce", "text", "abc")
    failed = run(broker, "consume", "text", "--value", "int64")
    assert failed.exit_code == 1
    assert "partition 0, offset 0" in failed.stderr
    assert "--value" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_numbers_shown_as_text_are_told_of_once_and_do_nothing_to_the_terminal(broker: EmbeddedBroker) -> None:
    broker.create_topic("numbers", 1)
    run(broker, "produce", "numbers", "--value", "int64", "1", "27")
    read = run(broker, "consume", "numbers")
    assert read.exit_code == 0
    assert read.stdout.splitlines() == ["null\t" + r"\x00" * 7 + r"\x01", "null\t" + r"\x00" * 7 + r"\x1b"]
    assert read.stderr == "values of numbers do not look like text (8 bytes, with zero bytes); try --value int64\n"


def test_empty_embedded_cluster_says_where_topics_come_from(tmp_path: Path) -> None:
    empty = EmbeddedBroker()
    try:
        assert "Start the application first" in run(empty, "topics").stderr
        assert "Start the application first" in run(empty, "produce", "lines", "x").stderr
    finally:
        empty.close()


def test_configuration_file_gives_the_settings_of_the_clients(broker: EmbeddedBroker, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("application.id=mine\nsecurity.protocol=SASL_SSL\n")
    refused = run(broker, "topics", "--config", str(path))
    assert refused.exit_code == 2
    assert "security.protocol: the embedded cluster has no security" in refused.stderr
