"""A broker on which tests create and delete topics."""

from __future__ import annotations

import itertools
import os

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

_numbers = itertools.count()


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
