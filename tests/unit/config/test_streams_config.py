"""StreamsConfig: where settings come from, what is allowed, and what the errors say."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams_py.config.client_keys import CLIENT_PREFIXES, ClientRole, without_prefix
from streams_py.config.keys import is_secret, masked
from streams_py.config.streams_config import StreamsConfig, known_keys
from streams_py.errors import ConfigError

BASE = {"application.id": "app", "bootstrap.servers": "broker:9092"}
SECRET = "hunter2"


def of(**keys: object) -> StreamsConfig:
    """Keyword arguments spell dots as double underscores, so that single ones can be tested too."""
    return StreamsConfig.of({**BASE, **{key.replace("__", "."): value for key, value in keys.items()}})


def error_of(settings: dict[str, object]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of({**BASE, **settings})
    return caught.value


# -- where settings come from ------------------------------------------------------------------------------------------


def test_defaults_are_those_of_kafka_streams() -> None:
    config = StreamsConfig.of(BASE)
    assert {
        "acceptable.recovery.lag": config.acceptable_recovery_lag,
        "buffered.records.per.partition": config.buffered_records_per_partition,
        "commit.interval.ms": config.commit_interval_ms,
        "max.task.idle.ms": config.max_task_idle_ms,
        "max.warmup.replicas": config.max_warmup_replicas,
        "num.standby.replicas": config.num_standby_replicas,
        "num.stream.threads": config.num_stream_threads,
        "poll.ms": config.poll_ms,
        "probing.rebalance.interval.ms": config.probing_rebalance_interval_ms,
        "replication.factor": config.replication_factor,
        "state.cleanup.delay.ms": config.state_cleanup_delay_ms,
        "statestore.cache.max.bytes": config.statestore_cache_max_bytes,
        "task.timeout.ms": config.task_timeout_ms,
    } == {
        "acceptable.recovery.lag": 10_000,
        "buffered.records.per.partition": 1_000,
        "commit.interval.ms": 30_000,
        "max.task.idle.ms": 0,
        "max.warmup.replicas": 2,
        "num.standby.replicas": 0,
        "num.stream.threads": 1,
        "poll.ms": 100,
        "probing.rebalance.interval.ms": 600_000,
        "replication.factor": -1,
        "state.cleanup.delay.ms": 600_000,
        "statestore.cache.max.bytes": 10_485_760,
        "task.timeout.ms": 300_000,
    }
    assert config.processing_guarantee == "at_least_once"
    assert config.state_dir.endswith("kafka-streams")


def test_keyword_arguments_win_over_the_mapping() -> None:
    config = StreamsConfig.of({**BASE, "num.stream.threads": 2, "poll.ms": 7}, num_stream_threads=3)
    assert (config.num_stream_threads, config.poll_ms) == (3, 7)


@pytest.mark.parametrize(
    ("spelling", "key", "part"),
    [
        ("security_protocol", "security.protocol", "clients"),
        ("producer_linger_ms", "producer.linger.ms", "clients"),
        ("main_consumer_max_poll_records", "main.consumer.max.poll.records", "clients"),
        ("topic_cleanup_policy", "cleanup.policy", "topics"),
        ("client_tag_zone", "zone", "client_tags"),
        ("app_limit", "limit", "app"),
    ],
)
def test_keyword_argument_reaches_its_group_when_it_has_a_prefix(spelling: str, key: str, part: str) -> None:
    config = StreamsConfig.of(BASE, **{spelling: "x"})
    assert getattr(config, part) == {key: "x"}


def test_keyword_argument_finds_a_key_that_has_underscores_itself() -> None:
    assert StreamsConfig.of(BASE, rack_aware_assignment_traffic_cost=7).rack_aware_assignment_traffic_cost == 7


def test_none_leaves_the_default() -> None:
    config = StreamsConfig.of({**BASE, "poll.ms": None, "producer.linger.ms": None}, num_stream_threads=None)
    assert (config.poll_ms, config.num_stream_threads, dict(config.clients)) == (100, 1, {})


def test_another_configuration_can_be_extended() -> None:
    first = of(num__stream__threads=2, producer__linger__ms=5, app__limit=1)
    second = StreamsConfig.of(first, num_stream_threads=4)
    assert (second.num_stream_threads, second.clients, second.app) == (4, {"producer.linger.ms": "5"}, {"limit": 1})
    assert first.num_stream_threads == 2


def test_toml_file_is_read_with_dotted_keys_and_tables(tmp_path: Path) -> None:
    file = tmp_path / "app.toml"
    file.write_text(
        'application.id = "app"\nbootstrap.servers = ["a:1", "b:2"]\nnum.stream.threads = 2\n'
        '[producer]\nlinger.ms = 5\nenable.idempotence = true\n[client.tag]\nzone = "eu"\n'
    )
    config = StreamsConfig.of(str(file), poll_ms=9)
    assert (config.application_id, config.bootstrap_servers) == ("app", ("a:1", "b:2"))
    assert (config.num_stream_threads, config.poll_ms) == (2, 9)
    assert config.clients == {"producer.linger.ms": "5", "producer.enable.idempotence": "true"}
    assert config.client_tags == {"zone": "eu"}


def test_properties_file_is_read_as_java_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "app.properties"
    file.write_text(
        "# comment\n! comment\n\napplication.id=app\nbootstrap.servers : a:1,\\\n    b:2\nnum.stream.threads 2\n"
        'sasl.jaas.config = Login required user="u" password="a=b";\napp.empty=\n'
    )
    config = StreamsConfig.of(file)
    assert (config.application_id, config.bootstrap_servers) == ("app", ("a:1", "b:2"))
    assert config.num_stream_threads == 2
    assert config.clients["sasl.jaas.config"] == 'Login required user="u" password="a=b";'
    assert config.app == {"empty": ""}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("app.toml", "application.id = ", "is not valid TOML"),
        ("app.properties", "application.id=app\n\\\nnonsense\n", "line 2: expected `key = value`, found 'nonsense'"),
        ("app.properties", "= value\n", "line 1: expected `key = value`"),
        ("app.ini", "[x]", "must end in .toml or .properties"),
    ],
)
def test_file_error_names_the_file_and_what_is_wrong(tmp_path: Path, name: str, text: str, message: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of(file)
    assert str(file) in str(caught.value)
    assert message in str(caught.value)


def test_missing_and_unreadable_files_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read configuration file .*app.toml: No such file"):
        StreamsConfig.of(tmp_path / "app.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        StreamsConfig.of(binary)


def test_older_name_is_understood_and_the_newer_one_wins() -> None:
    assert of(cache__max__bytes__buffering=5).statestore_cache_max_bytes == 5
    newer_first = {"statestore.cache.max.bytes": 6, "cache.max.bytes.buffering": 5}
    assert StreamsConfig.of({**BASE, **newer_first}).statestore_cache_max_bytes == 6
    assert StreamsConfig.of(BASE, cache_max_bytes_buffering=8).statestore_cache_max_bytes == 8


def test_configuration_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        StreamsConfig.of(BASE).poll_ms = 5  # type: ignore[misc]  # that is the point


# -- unknown keys ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("num.stream.thread", "num.stream.threads"),
        ("aplication.id", "application.id"),
        ("comit.interval.ms", "commit.interval.ms"),
        ("sasl.pasword", "sasl.password"),
        ("max.poll.intervall.ms", "max.poll.interval.ms"),
        ("group.id", "application.id"),
        ("group_id", "application.id"),
    ],
)
def test_unknown_key_names_the_nearest_known_one(key: str, nearest: str) -> None:
    error = error_of({key: SECRET})
    assert error.key == key
    assert f"unknown configuration key {key!r}: did you mean {nearest!r}?" in str(error)
    assert SECRET not in str(error)


def test_unknown_key_explains_prefixes_when_nothing_is_near() -> None:
    message = str(error_of({"zzz": 1}))
    assert "did you mean" not in message
    assert all(prefix in message for prefix in (*CLIENT_PREFIXES, "app."))


@pytest.mark.parametrize("internal", ["clients", "topics", "client_tags", "original", "app"])
def test_internal_field_is_no_key(internal: str) -> None:
    assert error_of({internal: {}}).key == internal


@pytest.mark.parametrize("prefix", [*CLIENT_PREFIXES, "topic.", "client.tag.", "app."])
def test_prefix_without_a_name_is_refused(prefix: str) -> None:
    assert "a name must follow the prefix" in str(error_of({prefix: 1}))


def test_keyword_argument_that_is_unknown_is_named_as_it_was_written() -> None:
    with pytest.raises(ConfigError, match=r"'num_stream_thread': did you mean 'num.stream.threads'\?"):
        StreamsConfig.of(BASE, num_stream_thread=2)


# -- wrong values: key, value, what is allowed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("num.stream.threads", "two", "a whole number"),
        ("num.stream.threads", 2.5, "a whole number"),
        ("num.stream.threads", True, "a whole number"),
        ("num.stream.threads", -1, "a number of at least 0"),
        ("num.stream.threads", 5000, "a number of at most 1000"),
        ("commit.interval.ms", "30s", "a whole number"),
        ("commit.interval.ms", -1, "a number of at least 0"),
        ("statestore.cache.max.bytes", "10MB", "a whole number"),
        ("max.task.idle.ms", -2, "a number of at least -1"),
        ("buffered.records.per.partition", 0, "a number of at least 1"),
        ("max.warmup.replicas", 0, "a number of at least 1"),
        ("num.standby.replicas", -1, "a number of at least 0"),
        ("probing.rebalance.interval.ms", 1000, "a number of at least 60000"),
        ("replication.factor", 0, "at least 1, or -1 for the broker's default"),
        ("rack.aware.assignment.traffic_cost", "x", "a whole number"),
        ("rack.aware.assignment.strategy", "max", "'none', 'min_traffic' or 'balance_subtopology'"),
        ("dsl.store.suppliers.class", "redis", "'rocksdb' or 'in_memory'"),
        ("metrics.recording.level", "info", "'INFO', 'DEBUG' or 'TRACE'"),
        ("processing.guarantee", "once", "'at_least_once'"),
        ("upgrade.from", "9.9", "a release such as 2.3 or 3.8"),
        ("upgrade.from", 3.5, "text, in quotes"),
        ("client.id", 7, "text, in quotes"),
        ("state.dir", " ", "the path of a folder"),
        ("topology.optimization", "some", "none, all, or a comma list of merge.repartition.topics"),
        ("topology.optimization", "none,all", "none, all, or a comma list of"),
        ("rack.aware.assignment.tags", 5, "a list, or text separated by commas"),
        ("application.server", "nohost", "host:port, for example localhost:8080"),
        ("application.server", "host:99999999999", "host:port, for example localhost:8080, with a port"),
    ],
)
def test_wrong_value_names_key_value_and_what_is_allowed(key: str, value: object, allowed: str) -> None:
    error = error_of({key: value})
    assert error.key == key
    assert str(error).startswith(f"{key} = {value!r} is not valid: expected {allowed}")


@pytest.mark.parametrize("name", ["", "a/b", "a b", "é", "..", ".", "a" * 250])
def test_application_id_is_refused_when_it_cannot_name_a_topic_and_a_folder(name: str) -> None:
    error = error_of({"application.id": name})
    assert error.key == "application.id"
    assert "1 to 249 of the characters A-Z a-z 0-9 . _ -" in str(error)


def test_long_value_is_cut_in_the_message() -> None:
    assert "... (252 characters)" in str(error_of({"application.id": "a" * 250}))


@pytest.mark.parametrize("missing", list(BASE))
def test_required_key_is_named_with_an_example(missing: str) -> None:
    with pytest.raises(ConfigError, match=rf"{missing} is required; set it, for example {missing} = '") as caught:
        StreamsConfig.of({key: value for key, value in BASE.items() if key != missing})
    assert caught.value.key == missing


@pytest.mark.parametrize(
    ("value", "servers"),
    [
        ("a:9092", ("a:9092",)),
        ("a:9092, b:9093,", ("a:9092", "b:9093")),
        (["a:1", "b:2"], ("a:1", "b:2")),
        ("[::1]:9092", ("[::1]:9092",)),
        ("embedded", ("embedded",)),
        ("embedded://tests", ("embedded://tests",)),
    ],
)
def test_bootstrap_servers_are_accepted(value: object, servers: tuple[str, ...]) -> None:
    config = StreamsConfig.of({**BASE, "bootstrap.servers": value})
    assert config.bootstrap_servers == servers
    assert config.embedded is servers[0].startswith("embedded")


@pytest.mark.parametrize(
    "value", ["", ",", "broker", "http://a:1", "a:0", "a:65536", "a:x", "embeded", "embedded,a:1", "embedded://a b"]
)
def test_bootstrap_servers_are_refused_when_they_are_no_addresses(value: str) -> None:
    error = error_of({"bootstrap.servers": value})
    assert error.key == "bootstrap.servers"
    assert "host:port" in str(error)
    assert "`embedded`" in str(error)


@pytest.mark.parametrize("guarantee", ["exactly_once", "exactly_once_beta"])
def test_guarantees_that_kafka_has_given_up_are_refused_with_what_to_do_instead(guarantee: str) -> None:
    assert "use exactly_once_v2" in str(error_of({"processing.guarantee": guarantee}))


def test_exactly_once_commits_every_100_ms_unless_told_otherwise() -> None:
    exactly_once = {**BASE, "processing.guarantee": "exactly_once_v2"}
    config = StreamsConfig.of(exactly_once)
    assert config.exactly_once
    assert (config.commit_interval_ms, config.transaction_timeout_ms) == (100, 30_000)
    assert StreamsConfig.of({**exactly_once, "commit.interval.ms": 5_000}).commit_interval_ms == 5_000
    assert StreamsConfig.of({**exactly_once, "producer.transaction.timeout.ms": 500}).transaction_timeout_ms == 500
    assert not StreamsConfig.of(BASE).exactly_once


@pytest.mark.parametrize("interval_ms", [30_000, 40_000])
def test_transaction_has_to_last_until_its_commit(interval_ms: int) -> None:
    error = error_of({"processing.guarantee": "exactly_once_v2", "commit.interval.ms": interval_ms})
    assert error.key == "commit.interval.ms"
    assert f"commit.interval.ms = {interval_ms} must be below producer.transaction.timeout.ms = 30000" in str(error)


def test_transaction_timeout_has_to_be_a_time() -> None:
    with pytest.raises(ConfigError, match=r"transaction.timeout.ms = '0' is not valid: .*, 1 to 2147483647"):
        StreamsConfig.of({**BASE, "processing.guarantee": "exactly_once_v2", "producer.transaction.timeout.ms": 0})
    with pytest.raises(ConfigError, match=r"transaction.timeout.ms = 'soon' is not valid"):
        StreamsConfig.of({**BASE, "processing.guarantee": "exactly_once_v2", "producer.transaction.timeout.ms": "soon"})


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("dsl.store.suppliers.class", "ROCKS_DB", "rocksdb"),
        ("dsl.store.suppliers.class", "in-memory", "in_memory"),
        ("topology.optimization", "all", ("all",)),
        ("topology.optimization", ["merge.repartition.topics"], ("merge.repartition.topics",)),
        ("application.server", "http://host.example:8080", "http://host.example:8080"),
        ("application.server", "", ""),
        ("upgrade.from", "3.5", "3.5"),
        ("num.stream.threads", " 2 ", 2),
        ("state.dir", Path("/data"), "/data"),
    ],
)
def test_value_is_read_in_its_other_spellings(key: str, value: object, read: object) -> None:
    assert getattr(StreamsConfig.of({**BASE, key: value}), key.replace(".", "_")) == read


# -- client tags (KIP-708) ---------------------------------------------------------------------------------------------


def test_tags_that_are_named_must_be_set() -> None:
    error = error_of({"rack.aware.assignment.tags": "zone,rack", "client.tag.zone": "eu"})
    assert error.key == "rack.aware.assignment.tags"
    assert "names 'rack', but this instance has no client.tag.rack; set it" in str(error)


def test_tags_are_read_when_all_are_set() -> None:
    config = StreamsConfig.of(
        {**BASE, "rack.aware.assignment.tags": "zone, rack", "client.tag.zone": "eu", "client.tag.rack": 7}
    )
    assert (config.rack_aware_assignment_tags, config.client_tags) == (("zone", "rack"), {"zone": "eu", "rack": "7"})


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({f"client.tag.k{number}": "v" for number in range(6)}, "at most 5 client tags are allowed, got 6"),
        ({f"client.tag.{'k' * 21}": "v"}, "a tag key may have at most 20 characters"),
        ({"client.tag.k": "v" * 31}, "a value at most 30"),
        ({"rack.aware.assignment.tags": "a,b,c,d,e,f"}, "names more than 5 tags"),
    ],
)
def test_tags_beyond_the_limits_are_refused(tags: dict[str, object], message: str) -> None:
    assert message in str(error_of(tags))


def test_tags_at_the_limits_are_accepted() -> None:
    tags = {f"client.tag.{'k' * 19}{number}": "v" * 30 for number in range(5)}
    assert len(StreamsConfig.of({**BASE, **tags}).client_tags) == 5


# -- client settings ---------------------------------------------------------------------------------------------------


def test_more_special_prefix_wins_for_a_client() -> None:
    config = of(
        fetch__min__bytes=1, consumer__fetch__min__bytes=2, main__consumer__fetch__min__bytes=3, producer__acks="all"
    )
    assert config.settings_for(ClientRole.MAIN_CONSUMER) == {"fetch.min.bytes": "3"}
    assert config.settings_for(ClientRole.RESTORE_CONSUMER) == {"fetch.min.bytes": "2"}
    assert config.settings_for(ClientRole.PRODUCER) == {"fetch.min.bytes": "1", "acks": "all"}
    assert config.setting_for(ClientRole.ADMIN, "fetch.min.bytes") == "1"
    assert config.setting_for(ClientRole.MAIN_CONSUMER, "acks") is None


@pytest.mark.parametrize("role", ClientRole)
def test_client_has_the_settings_of_its_prefixes_only(role: ClientRole) -> None:
    clients = {f"{prefix}client.rack": f"of {prefix}" for prefix in CLIENT_PREFIXES}
    config = StreamsConfig.of({**BASE, **clients, "client.rack": "of all"})
    assert config.settings_for(role) == {"client.rack": f"of {role.value[-1]}"}
    assert set(role.value) <= set(CLIENT_PREFIXES)
    *before, last = role.keys("client.rack")
    assert last == role.key("client.rack") == f"{role.value[-1]}client.rack"
    expected = [clients[f"{prefix}client.rack"] for prefix in role.value[:-1]]
    assert [config.original[key] for key in before] == ["of all", *expected]
    assert {without_prefix(key) for key in role.keys("client.rack")} == {"client.rack"}


def test_only_the_own_prefix_of_a_client_overrides_its_preset() -> None:
    config = of(acks="all", producer__acks="0", linger__ms="5", assignment__events__producer__linger__ms="7")
    assert config.settings_for(ClientRole.EVENT_PRODUCER, {"acks": "1", "linger.ms": "9"}) == {
        "acks": "1",
        "linger.ms": "7",
    }


def test_number_of_a_client_is_checked_and_the_error_names_its_key() -> None:
    config = of(max__poll__records="many", main__consumer__max__poll__interval__ms=0, producer__max__block__ms=0)
    assert config.number_for(ClientRole.MAIN_CONSUMER, "session.timeout.ms", 45) == 45
    assert config.number_for(ClientRole.PRODUCER, "max.block.ms", 9, least=0) == 0
    for name, least, most, expected in (
        ("max.poll.records", 1, None, "'many' is not valid: expected a whole number, 1 or more"),
        ("max.poll.interval.ms", 1, None, "'0' is not valid: expected a whole number of milliseconds, 1 or more"),
        ("max.poll.interval.ms", 1, 9, "'0' is not valid: expected a whole number of milliseconds, 1 to 9"),
    ):
        with pytest.raises(ConfigError) as raised:
            config.number_for(ClientRole.MAIN_CONSUMER, name, 5, least=least, most=most)
        assert (str(raised.value), raised.value.key) == (f"{name} = {expected}", name)


def test_prefixed_key_is_passed_on_unchecked() -> None:
    assert of(producer__whatever__it__is=1).settings_for(ClientRole.PRODUCER) == {"whatever.it.is": "1"}


def test_known_keys_are_dotted_and_complete() -> None:
    keys = known_keys()
    assert {"application.id", "rack.aware.assignment.traffic_cost", "task.assignor.class"} <= keys
    assert not keys & {"clients", "topics", "client.tags", "app", "original"}


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password", "producer.sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem",
        "ssl.truststore.password", "sasl.jaas.config", "consumer.sasl.jaas.config", "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config", "ssl.keystore.key", "app.token", "app.auth_token", "app.api_key", "app.private-key",
        "app.passwd",
    ],
)  # fmt: skip
def test_secret_is_masked_in_repr(key: str) -> None:
    config = StreamsConfig.of({**BASE, key: SECRET})
    assert is_secret(key)
    assert SECRET not in repr(config)
    assert SECRET not in str(config)
    assert f"{key}='[hidden]'" in repr(config)


@pytest.mark.parametrize(
    "key", ["sasl.username", "ssl.ca.location", "sasl.oauthbearer.token.endpoint.url", "ssl.key.location", "app.keys"]
)
def test_what_is_no_secret_is_shown(key: str) -> None:
    assert f"{key}='plain'" in repr(StreamsConfig.of({**BASE, key: "plain"}))


def test_secret_is_masked_in_messages() -> None:
    assert masked("sasl.password", SECRET) == "[hidden]"
    assert masked("client.id", "me") == "'me'"


def test_other_settings_are_in_no_error_message() -> None:
    assert SECRET not in str(error_of({"sasl.password": SECRET, "poll.ms": "x"}))
    assert SECRET not in str(error_of({"sasl.password": SECRET, "nonsense": "x"}))


def test_embedded_cluster_commits_often_unless_the_configuration_says_otherwise() -> None:
    def commit_interval_ms(bootstrap: object, **settings: object) -> int:
        return StreamsConfig.of({"application.id": "a", "bootstrap.servers": bootstrap}, **settings).commit_interval_ms

    assert (
        commit_interval_ms("embedded")
        == commit_interval_ms("embedded://own")
        == commit_interval_ms(["embedded"])
        == 200
    )
    assert commit_interval_ms("embedded", commit_interval_ms=5_000) == 5_000
    assert commit_interval_ms("localhost:9092") == 30_000
    assert (
        StreamsConfig.of(StreamsConfig.of(application_id="a", bootstrap_servers="embedded")).commit_interval_ms == 200
    )


def test_missing_address_is_no_embedded_cluster_but_names_it() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers is required; .*'localhost:9092', or 'embedded'"):
        StreamsConfig.of(application_id="a")
