"""Options of `streams-kafka`: checked before anything runs, and without secrets."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from streams_py.errors import ConfigError
from streams_py.spark.kafka.options import (
    Position,
    PositionKind,
    for_reader,
    for_writer,
    parse_position,
    reader_options,
    writer_options,
)
from streams_py.spark.kafka.source import StreamsKafkaSource

BASE = {"kafka.bootstrap.servers": "localhost:9092", "topics": "b, a,b"}


def test_defaults_are_those_of_a_committed_whole_read() -> None:
    options = reader_options(BASE, streaming=False)
    assert options.assigned == {"a": (), "b": ()}
    assert options.starting == Position(PositionKind.EARLIEST)
    assert options.ending == Position(PositionKind.LATEST)
    assert options.read_committed
    assert not options.skip_gone
    assert not options.push_filters
    assert (options.split_records, options.rows_per_trigger) == (None, None)
    assert (options.batch_records, options.batch_bytes, options.poll_timeout_ms) == (16_384, 8 << 20, 60_000)
    assert options.kafka == {"bootstrap.servers": "localhost:9092"}


def test_names_of_options_ignore_case_as_sparks_do() -> None:
    given = CaseInsensitiveDict({"Kafka.Bootstrap.Servers": "h:1", "Topics": "a", "Split.Records": "5"})
    assert reader_options(given, streaming=False).split_records == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position("earliest")),
        (" latest ", Position("latest")),
        ("EARLIEST", Position("earliest")),
        ("group:my:group", Position("group", group="my:group")),
        ("timestamp:0", Position("timestamp", timestamp_ms=0)),
        ('{"t":{"1":-1,"0":12}}', Position("offsets", by_partition='{"t":{"0":12,"1":-1}}')),
        ('timestamp: {"t":{"1":7}}', Position("timestamp", by_partition='{"t":{"1":7}}')),
    ],
)
def test_position_is_read(text: str, expected: Position) -> None:
    assert parse_position(text, "starting") == expected


@pytest.mark.parametrize(
    "text",
    ["", "first", "group:", "timestamp:", "timestamp:-1", "timestamp:x", "timestamp:1.5", "{", "[]", '{"t":1}',
     'timestamp:{"t":{"0":-1}}', 'timestamp:{"t":7}', '{"t":{"x":1}}', '{"t":{"0":-3}}', '{"t":{"0":"1"}}',
     '{"t":{"²":1}}', '{"t":{"0":true}}', '{"t":{"0":9223372036854775808}}'],
)  # fmt: skip
def test_position_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_position(text, "starting")
    assert refused.value.key == "starting"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"topics": " , "}, "topics"),
        ({"assign": '{"a":[0]}'}, "topics"),
        ({"topics.pattern": "a.*"}, "topics"),
        ({"topics.pattern": "(", "topics": None}, "topics.pattern"),
        ({"topic": "a"}, "topic"),
        ({"isolation": "none"}, "isolation"),
        ({"split.records": "0"}, "split.records"),
        ({"batch.records": "-5"}, "batch.records"),
        ({"batch.bytes": "many"}, "batch.bytes"),
        ({"on.gone": "ignore"}, "on.gone"),
        ({"rows.per.trigger": "5"}, "rows.per.trigger"),
        ({"transactional.id.prefix": "x"}, "transactional.id.prefix"),
    ],
)
def test_option_that_cannot_be_used_is_named(change: dict[str, str | None], key: str) -> None:
    given = {name: value for name, value in (BASE | change).items() if value is not None}
    with pytest.raises(ConfigError) as refused:
        reader_options(given, streaming=False)
    assert refused.value.key == key


@pytest.mark.parametrize("option", ["ending", "split.records", "min.partitions", "push.filters"])
def test_stream_refuses_what_only_a_batch_has(option: str) -> None:
    with pytest.raises(ConfigError, match="batches only"):
        reader_options(BASE | {option: "5"}, streaming=True)


def test_assign_names_partitions() -> None:
    options = reader_options({"kafka.bootstrap.servers": "h:1", "assign": '{"t":[2,0,2]}'}, streaming=False)
    assert options.assigned == {"t": (0, 2)}
    for bad in ('{"t":[]}', '{"t":[-1]}', '{"t":0}', "{}", "x"):
        with pytest.raises(ConfigError, match="assign"):
            reader_options({"kafka.bootstrap.servers": "h:1", "assign": bad}, streaming=False)


# -- the connector's names ---------------------------------------------------------------------------------------------

CONNECTOR = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "b,a"}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"startingOffsets": "latest"}, {"starting": "latest"}),
        ({"startingOffsets": '{"a":{"0":-2}}'}, {"starting": '{"a":{"0":-2}}'}),
        ({"startingTimestamp": "7", "endingTimestamp": "9"}, {"starting": "timestamp:7", "ending": "timestamp:9"}),
        ({"endingOffsetsByTimestamp": '{"a":{"0":7}}'}, {"ending": 'timestamp:{"a":{"0":7}}'}),
        ({"endingOffsets": "latest", "minPartitions": "9"}, {"ending": "latest", "min.partitions": "9"}),
        ({"maxRecordsPerPartition": "5"}, {"split.records": "5"}),
        ({"kafkaConsumer.pollTimeoutMs": "5"}, {"poll.timeout.ms": "5"}),
        ({"kafka.isolation.level": "read_uncommitted"}, {"isolation": "read_uncommitted"}),
        ({"failOnDataLoss": "TRUE", "includeHeaders": "true"}, {}),
        ({"startingOffsetsByTimestampStrategy": "latest"}, {}),
    ],
)
def test_option_of_the_connector_means_the_same_here(theirs: dict[str, str], ours: dict[str, str]) -> None:
    assert reader_options(CONNECTOR | theirs, streaming=False) == reader_options(BASE | ours, streaming=False)


def test_pattern_and_limit_of_the_connector_are_ours() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "a-.*", "maxOffsetsPerTrigger": "7"}
    options = reader_options(given, streaming=True)
    assert (options.pattern, options.assigned, options.rows_per_trigger) == ("a-.*", {}, 7)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"failOnDataLoss": "false"}, "on.gone=skip"),
        ({"includeHeaders": "false"}, "drop it"),
        ({"startingOffsetsByTimestampStrategy": "error"}, "reading starts at the end"),
        ({"groupIdPrefix": "x"}, "do not join a consumer group"),
        ({"kafka.group.id": "x"}, "do not join a consumer group"),
        ({"minOffsetsPerTrigger": "5"}, "trigger interval"),
        ({"kafkaConsumer.cache.timeout": "5m"}, "remove this option"),
        ({"fetchOffset.numRetries": "5"}, "poll.timeout.ms"),
        ({"kafka.auto.offset.reset": "latest"}, "starting"),
    ],
)
def test_option_of_the_connector_without_a_meaning_here_has_a_hint(given: dict[str, str], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as refused:
        reader_options(CONNECTOR | given, streaming=False)
    assert refused.value.key == next(iter(given)).lower()


def test_one_thing_is_not_given_by_two_names() -> None:
    with pytest.raises(ConfigError, match="options topics and subscribe mean the same"):
        reader_options(BASE | {"subscribe": "a"}, streaming=False)


# -- secrets -----------------------------------------------------------------------------------------------------------

PLAIN = "hunter2"


@pytest.mark.parametrize(
    "key", ["kafka.sasl.password", "kafka.sasl.jaas.config", "kafka.ssl.key.password", "kafka.ssl.key.pem",
            "kafka.sasl.oauthbearer.client.secret", "kafka.some.Token"],
)  # fmt: skip
def test_plain_secret_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        writer_options({"kafka.bootstrap.servers": "h:1", key: PLAIN})
    assert PLAIN not in str(refused.value)
    assert "env:NAME" in str(refused.value)


@pytest.mark.parametrize(
    "key", ["sasl.oauthbearer.token.source", "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope"]
)
def test_where_a_token_comes_from_is_no_secret(key: str) -> None:
    options = writer_options({"kafka.bootstrap.servers": "h:1", f"kafka.{key}": "tokens:of_mine"})
    assert options.resolved()[key] == "tokens:of_mine"


def test_plain_secret_is_taken_when_that_is_said() -> None:
    options = writer_options(
        {"kafka.bootstrap.servers": "h:1", "kafka.sasl.password": PLAIN, "allow.plain.secrets": "true"}
    )
    assert options.resolved()["sasl.password"] == PLAIN


def test_secret_is_looked_up_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PLAIN}\n")
    monkeypatch.setenv("KEY_PASSWORD", "other")
    options = writer_options(
        {
            "kafka.bootstrap.servers": "h:1",
            "kafka.sasl.password": f"file:{file}",
            "kafka.ssl.key.password": "env:KEY_PASSWORD",
        }
    )
    assert options.kafka["sasl.password"] == f"file:{file}"
    assert options.resolved() == {"bootstrap.servers": "h:1", "sasl.password": PLAIN, "ssl.key.password": "other"}
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read on this machine"):
        options.resolved()
    monkeypatch.delenv("KEY_PASSWORD")
    file.write_text(PLAIN)
    with pytest.raises(ConfigError, match="this environment variable is not set"):
        options.resolved()


def test_reference_is_only_followed_for_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVERS", "elsewhere:1")
    options = writer_options({"kafka.bootstrap.servers": "h:1", "kafka.client.rack": "env:SERVERS"})
    assert options.resolved()["client.rack"] == "env:SERVERS"


def test_what_travels_to_workers_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", PLAIN)
    given = CaseInsensitiveDict(BASE | {"kafka.sasl.password": "env:PASSWORD", "kafka.sasl.username": "me"})
    source = StreamsKafkaSource(given)
    reader = source.reader(schema=None)
    reader._options.resolved()  # on the driver, before it travels
    for travels in (source, reader, source.streamReader(schema=None)):
        assert PLAIN.encode() not in pickle.dumps(travels)


def test_options_for_both_directions_go_to_the_one_that_has_them() -> None:
    given = {
        "kafka.bootstrap.servers": "h:1",
        "kafka.linger.ms": "5",
        "Poll.Timeout.Ms": "7",
        "failOnDataLoss": "true",
        "startingOffsets": "latest",
        "flush.timeout.ms": "9",
    }
    reading, writing = for_reader({**given, "topics": "a"}), for_writer(given)
    options = reader_options(reading, streaming=False)
    assert (options.poll_timeout_ms, options.starting) == (7, Position(PositionKind.LATEST))
    assert writer_options(writing).flush_timeout_ms == 9
    assert reading.keys() - writing.keys() == {"poll.timeout.ms", "starting", "topics"}
    for unknown in (for_reader({**given, "topics": "a", "pol": "1"}), for_writer({**given, "pol": "1"})):
        assert unknown["pol"] == "1", "each reader and writer refuses it"
