"""The cluster and the credentials that the commands over a history use."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams_py.cli.spark.history_inputs import partitions_of
from streams_py.cli.spark.history_options import kafka_options, settings_from
from streams_py.cli.spark.source_options import positions_in
from streams_py.errors import ConfigError
from streams_py.spark.history.run import settings_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.properties"
    path.write_text(
        "application.id=shop\nbootstrap.servers=broker:9093\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.username=me\nsasl.password=secret-word\nmain.consumer.fetch.min.bytes=7\n"
    )
    return path


def test_cluster_is_that_of_the_file_unless_the_command_names_another_one(file: Path) -> None:
    assert settings_from(None, None, file)["bootstrap.servers"] == "broker:9093"
    assert settings_from("other:1", None, file)["bootstrap.servers"] == "other:1"
    assert settings_from(None, "shop", None)["bootstrap.servers"] == "localhost:9092"
    assert settings_from(None, None, file)["application.id"] == "shop"
    assert settings_from(None, None, file, "diff")["application.id"] == "shop"
    assert settings_from(None, None, None, "diff")["application.id"] == "diff"
    with pytest.raises(ConfigError, match="--application-id"):
        settings_from(None, None, None)
    with pytest.raises(
        ConfigError, match=r"application.id is shop in .*shop.properties, but store on the command line"
    ):
        settings_from(None, "store", file)


def test_source_is_let_in_like_the_application(file: Path) -> None:
    options = kafka_options(settings_from(None, None, file), ["kafka.sasl.password=env:PASSWORD", "on.gone=skip"])
    assert options == {
        "kafka.bootstrap.servers": "broker:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "me",
        "kafka.sasl.password": "env:PASSWORD",
        "on.gone": "skip",
    }


def test_source_reads_the_cluster_of_a_list_of_addresses(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text('application.id = "shop"\nbootstrap.servers = ["one:1", "two:2"]\n')
    options = kafka_options(settings_from(None, None, path), None)
    assert options == {"kafka.bootstrap.servers": "one:1,two:2"}


@pytest.mark.parametrize("key", ["producer.max.request.size", "max.request.size"])
def test_records_may_be_as_large_as_those_of_the_application(file: Path, key: str) -> None:
    file.write_text(f"{file.read_text()}{key}=5000000\n")
    assert kafka_options(settings_from(None, None, file), None)["kafka.message.max.bytes"] == "5000000"


def test_no_secret_travels_with_the_settings_of_tasks(file: Path) -> None:
    assert "secret-word" not in str(settings_of(settings_from(None, None, file)))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("kafka.bootstrap.servers=other:1", "--bootstrap"),
        ("Kafka.Bootstrap.Servers=other:1", "--bootstrap"),
        ("kafka.metadata.broker.list=other:1", "--bootstrap"),
        ("topics=other", "the topology determines which topics"),
        ("subscribe=other", "the topology determines which topics"),
        ("subscribePattern=o.*", "the topology determines which topics"),
        ('assign={"other":[0]}', "the topology determines which topics"),
        ("topic=other", "the topology determines which topics"),
    ],
)
def test_option_that_contradicts_the_command_is_refused(file: Path, option: str, said: str) -> None:
    settings = settings_from(None, None, file)
    key = option.partition("=")[0]
    for is_planned in (False, True):
        with pytest.raises(ConfigError, match=f"--option {key}: {said}.*; remove this option"):
            kafka_options(settings, [option], is_planned=is_planned)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("lines=0", "--partitions lines=0: expected TOPIC=COUNT, with a count of at least 1"),
        ("lines=two", "--partitions lines=two: expected TOPIC=COUNT, with a count of at least 1"),
        ("lines", "expected TOPIC=COUNT"),
        ("names=2", "--partitions names: the topic is not read from an archive"),
        ("others=2", "--partitions others: the topic is not read from an archive"),
    ],
)
def test_partitions_are_those_of_an_archive(given: str, said: str) -> None:
    sources = {"lines": "/archive/lines", "names": {"kafka.bootstrap.servers": "h:1"}}
    assert partitions_of(["lines=3"], sources) == {"lines": 3}
    assert partitions_of(None, sources) == {}
    assert partitions_of(["out=3"], sources, ["out"]) == {"out": 3}
    with pytest.raises(ConfigError, match=said):
        partitions_of([given], sources)


@pytest.mark.parametrize("option", ["starting=latest", "endingOffsets=latest", "startingTimestamp=5"])
def test_option_that_contradicts_the_plan_is_refused(file: Path, option: str) -> None:
    settings = settings_from(None, None, file)
    with pytest.raises(ConfigError, match=r"the plan determines the range to read; remove this option"):
        kafka_options(settings, [option], is_planned=True)
    (position,) = positions_in(kafka_options(settings, [option])).values()
    assert position in ("latest", "timestamp:5")
