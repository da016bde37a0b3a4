"""A real broker, and one Spark session for all tests that need one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streams_py.testing.broker import Broker
from tests.support.spark.cluster import Cluster
from tests.support.spark.standalone import Standalone
from tests.support.spark.warm_start import App

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A few dozen rows through many small plans: compiling them costs more than running them.
_LITTLE_DATA = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": False,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


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
def app(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> App:
    return App(cluster, tmp_path)


@pytest.fixture
def options(cluster: Cluster) -> Callable[..., dict[str, str]]:
    """Options with the broker's address; underscores stand for dots."""

    def make(**given: Any) -> dict[str, str]:
        named: Mapping[str, str] = {key.replace("_", "."): str(value) for key, value in given.items()}
        return {"kafka.bootstrap.servers": cluster.bootstrap, **named}

    return make
