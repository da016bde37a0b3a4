"""A real broker, and one Spark session for all tests that need one."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from streams_py.testing.broker import Broker
from tests.support.spark.standalone import Standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()

# A few dozen rows through many small plans: compiling them costs more than running them.
_LITTLE_DATA = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": False,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Cluster:
    """The broker, with methods to create and delete topics. Records keep their timestamps, however old."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def topic(self, partitions: int = 2, *, name: str = "", **config: str) -> str:
        name = name or f"spark-{os.getpid()}-{next(_numbers)}"
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        self._admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        while name not in self._admin.list_topics(timeout=30).topics:  # a busy broker learns it a moment later
            pass
        return name

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(30)
        while topic in self._admin.list_topics(timeout=30).topics:
            pass

    def add_partitions(self, topic: str, count: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        # A client that knew the topic before may not know the leaders of new partitions yet.
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            future.result(30)

    def set_config(self, topic: str, **config: str) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ResourceType

        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(30)


@pytest.fixture(scope="session")
def cluster(kafka_broker: Broker) -> Cluster:
    return Cluster(kafka_broker.bootstrap)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two local cores. It is started once, because that takes longer than most tests."""
    from streams_py.spark.kafka.source import register
    from streams_py.spark.session import spark_session

    logging.getLogger("py4j").setLevel(logging.WARNING)
    session = spark_session("streams-py tests", master="local[2]", **_LITTLE_DATA)
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    """A Spark cluster of three workers with one core each. Drivers are separate processes."""
    made = Standalone(tmp_path / "standalone")
    yield made
    made.close()


@pytest.fixture
def options(cluster: Cluster) -> Callable[..., dict[str, str]]:
    """Options with the broker's address; underscores stand for dots."""

    def make(**given: Any) -> dict[str, str]:
        named: Mapping[str, str] = {key.replace("_", "."): str(value) for key, value in given.items()}
        return {"kafka.bootstrap.servers": cluster.bootstrap, **named}

    return make
