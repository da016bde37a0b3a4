"""Creates, checks and reads the three topics of a worker."""

from __future__ import annotations

from collections.abc import Callable

from streams_py.connect.ports import ConnectClients
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.configs import ConfigChange, ConfigStore
from streams_py.connect.stores.log import TopicLog, create_topic
from streams_py.connect.stores.offsets import OffsetStore
from streams_py.connect.stores.statuses import StatusStore
from streams_py.errors import ConfigError
from streams_py.ports import RawRecord


class Stores:
    """The three topics.

    Raises ConfigError for unusable topics, BrokerUnavailableError without a broker.
    """

    def __init__(self, settings: WorkerSettings, clients: ConnectClients) -> None:
        self._admin = admin = clients.admin()
        config, offset, status = (
            settings.config_storage_topic,
            settings.offset_storage_topic,
            settings.status_storage_topic,
        )

        def create(topic: str, setting: str, partitions: int, replication: int) -> int:
            return create_topic(clients, admin, topic, partitions=partitions, replication=replication, setting=setting)

        def log(topic: str) -> Callable[[Callable[[RawRecord], None]], TopicLog]:
            return lambda on_record: TopicLog(clients, admin, topic, settings.client, on_record)

        found = create(config, "config.storage.topic", 1, settings.config_storage_replication_factor)
        if found != 1:
            raise ConfigError(
                f"config.storage.topic = {config} has {found} partitions, but must have 1: its records need one order",
                key="config.storage.topic",
            )
        offset_partitions = create(
            offset,
            "offset.storage.topic",
            settings.offset_storage_partitions,
            settings.offset_storage_replication_factor,
        )
        status_partitions = create(
            status,
            "status.storage.topic",
            settings.status_storage_partitions,
            settings.status_storage_replication_factor,
        )
        self.configs = ConfigStore(log(config))
        self.offsets = OffsetStore(log(offset), offset_partitions)
        self.statuses = StatusStore(log(status), status_partitions)

    def cluster_id(self) -> str | None:
        """Return the cluster's id."""
        return self._admin.cluster_id()

    def start(self, on_change: Callable[[ConfigChange], None]) -> None:
        """Read all topics to their ends."""
        self.offsets.start()
        self.statuses.start()
        self.configs.start(on_change)

    def stop(self) -> None:
        self.configs.stop()
        self.offsets.stop()
        self.statuses.stop()
        self._admin.close()
