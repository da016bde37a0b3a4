"""Shows and changes offsets of connectors (KIP-875).

Source: Kafka's ``Worker.modifyConnectorOffsets``.

The offsets of a source connector are in the offset topic. The offsets of a sink connector are those of its consumer
group ``connect-<name>``. Offsets can be changed only while the connector is stopped, because a running task would
overwrite them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.connect.api import Connector, JsonMap, SinkConnector
from streams_py.connect.errors import BadRequestError
from streams_py.connect.policy.worker_policy import LoadedConnector
from streams_py.connect.ports import ConnectClients, SinkOffsets
from streams_py.connect.stores.offsets import OffsetStore, offset_key
from streams_py.system.printable import named

OffsetChange: TypeAlias = "tuple[JsonMap, JsonMap | None]"
"""(partition, offset); None removes the offset of the partition."""

_WRITE_S: Final = 30.0
_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_OFFSET_MAX: Final = 2**63 - 1


def sink_group(connector: str) -> str:
    """The consumer group of a sink connector's tasks."""
    return f"connect-{connector}"


class ConnectorOffsets:
    """Offsets of all connectors of a worker.

    Methods raise BrokerUnavailableError, or StreamsError with a broker's refusal.
    """

    def __init__(self, offsets: OffsetStore, clients: ConnectClients) -> None:
        self._sources = offsets
        self._clients = clients

    def read(self, name: str, connector: Connector) -> list[tuple[JsonMap, JsonMap]]:
        """Return (partition, offset) pairs of a connector."""
        if not isinstance(connector, SinkConnector):
            return list(self._sources.of(name))
        with self._clients.sink_offsets() as offsets:
            found = offsets.committed(sink_group(name))
        return [({_TOPIC: tp.topic, _PARTITION: tp.partition}, {_OFFSET: at}) for tp, at in sorted(found.items())]

    def alter(self, name: str, loaded: LoadedConnector, changes: Sequence[OffsetChange]) -> bool:
        """Change some offsets.

        Returns:
            Whether the connector has also changed offsets that it keeps outside Kafka (``Connector.alter_offsets``).

        Raises:
            BadRequestError: The changes have the wrong form for this kind of connector, or the connector refuses them.
        """
        if isinstance(loaded.connector, SinkConnector):
            wanted = _sink_changes(changes)
            told = _ask(loaded, changes)
            with self._clients.sink_offsets() as offsets:
                _alter(offsets, name, wanted)
            return told
        told = _ask(loaded, changes)
        self._sources.write({offset_key(name, partition): offset for partition, offset in changes}, _WRITE_S)
        return told

    def reset(self, name: str, loaded: LoadedConnector) -> bool:
        """Remove all offsets, so that the connector starts from the beginning.

        Returns and raises like :meth:`alter`.
        """
        if isinstance(loaded.connector, SinkConnector):
            with self._clients.sink_offsets() as offsets:
                group = sink_group(name)
                told = _ask(loaded, [({_TOPIC: t, _PARTITION: p}, None) for t, p in sorted(offsets.committed(group))])
                offsets.delete_group(group)
            return told
        removed: list[OffsetChange] = [(partition, None) for partition, _ in self._sources.of(name)]
        told = _ask(loaded, removed)
        self._sources.write({offset_key(name, partition): None for partition, _ in removed}, _WRITE_S)
        return told


def _ask(loaded: LoadedConnector, changes: Sequence[OffsetChange]) -> bool:
    try:
        return loaded.connector.alter_offsets(loaded.props, changes)
    except Exception as error:
        kind = type(loaded.connector).__name__
        raise BadRequestError(loaded.hide(f"{kind} refuses these offsets: {named(error)}")) from None


def _alter(offsets: SinkOffsets, name: str, changes: Mapping[TopicPartition, int | None]) -> None:
    group = sink_group(name)
    positions = {partition: at for partition, at in changes.items() if at is not None}
    removed = [partition for partition, at in changes.items() if at is None]
    if positions:
        offsets.set_offsets(group, positions)
    if removed:
        offsets.delete_offsets(group, removed)


def _sink_changes(changes: Sequence[OffsetChange]) -> dict[TopicPartition, int | None]:
    return {_sink_partition(partition): None if at is None else _sink_offset(at) for partition, at in changes}


def _sink_partition(partition: JsonMap) -> TopicPartition:
    topic, number = partition.get(_TOPIC), _whole(partition.get(_PARTITION))
    if not isinstance(topic, str) or not topic or number is None or partition.keys() - {_TOPIC, _PARTITION}:
        raise BadRequestError(
            f'the partition {dict(partition)!r} of a sink must be {{"{_TOPIC}": "...", "{_PARTITION}": number}}'
        )
    return TopicPartition(topic, number)


def _sink_offset(offset: JsonMap) -> int:
    number = _whole(offset.get(_OFFSET))
    if number is None or offset.keys() - {_OFFSET}:
        raise BadRequestError(f'the offset {dict(offset)!r} of a sink must be {{"{_OFFSET}": number}}, or null')
    return number


def _whole(value: Any) -> int | None:
    """Return a whole number of at least 0. Text is accepted, as in Kafka Connect."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    return value if type(value) is int and 0 <= value <= _OFFSET_MAX else None
