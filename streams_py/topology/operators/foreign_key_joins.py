"""The five operators of a foreign-key join; :mod:`..formats.foreign_keys` has their messages.

On the left: :class:`SubscriptionSend` subscribes, :class:`ResponseJoin` joins the responses. On the right:
:class:`SubscriptionReceive` stores subscriptions, :class:`SubscriptionJoin` answers a new subscription,
:class:`ForeignTableJoin` answers all subscriptions to a changed row. Kafka Streams' processors of the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams_py.errors import ConfigError
from streams_py.serdes import Serde, serde_or_default
from streams_py.topology.declare.in_context import at_its_time, within
from streams_py.topology.declare.names import full_topic_name
from streams_py.topology.declare.nodes import NodeContext, Process
from streams_py.topology.formats.foreign_keys import (
    Instruction,
    Response,
    Subscription,
    murmur3_128,
    subscription_key,
    subscription_prefix,
)
from streams_py.topology.operators.tables import TableOperator, latest_only, upgrades_from

_NULL_FOREIGN_KEY = "null foreign key in a join of tables"
_SUBSCRIPTIONS_WITHOUT_PARTITION_UNTIL = (3, 3)


class ForeignKeySerdes:
    """Functions for keys and values inside the messages. A serde of None: the configured default.

    ``topic`` is the short name of the subscription topic. The topic names that serdes get are made of it.
    """

    def __init__(
        self, topic: str, primary_key: Serde[Any] | None, foreign_key: Serde[Any] | None, value: Serde[Any] | None
    ) -> None:
        self._topic = topic
        self._primary_key = primary_key
        self._foreign_key = foreign_key
        self._value = value

    def _of(self, node: NodeContext, given: Serde[Any] | None, suffix: str, *, is_key: bool) -> tuple[Serde[Any], str]:
        serde = serde_or_default(given, node.serde_defaults, is_key=is_key)
        if serde is None:
            what = "key" if is_key else "value"
            raise ConfigError(
                f"node {node.name} has no {what} serde: set one for the joined tables, or set default.{what}.serde",
                key=f"default.{what}.serde",
            )
        return serde, full_topic_name(node.application_id, f"{self._topic}{suffix}")

    def foreign_key_encoder(self, node: NodeContext) -> Callable[[Any], bytes]:
        """Return the encoder of foreign keys."""
        serde, topic = self._of(node, self._foreign_key, "-fk", is_key=True)
        return serde.serializer(topic, is_key=True)

    def primary_key_encoder(self, node: NodeContext) -> Callable[[Any], bytes]:
        """Return the encoder of primary keys."""
        serde, topic = self._of(node, self._primary_key, "-pk", is_key=True)
        return serde.serializer(topic, is_key=True)

    def primary_key_decoder(self, node: NodeContext) -> Callable[[bytes], Any]:
        """Return the decoder of primary keys."""
        serde, topic = self._of(node, self._primary_key, "-pk", is_key=True)
        return serde.deserializer(topic, is_key=True)

    def hasher(self, node: NodeContext) -> Callable[[Any], bytes]:
        """Return the hash function of left values."""
        serde, topic = self._of(node, self._value, "-vh", is_key=False)
        encode = serde.serializer(topic, is_key=False)
        return lambda value: murmur3_128(encode(value))


class SubscriptionSend:
    """Converts changes of the left table to subscriptions.

    ``extractor`` is called with the key and the value of a row.
    """

    replayable = True

    def __init__(
        self, left: TableOperator, extractor: Callable[[Any, Any], Any], serdes: ForeignKeySerdes, *, keeps_left: bool
    ) -> None:
        self._left = left
        self._extractor = extractor
        self._serdes = serdes
        self._keeps_left = keeps_left

    def bind(self, node: NodeContext) -> Process:
        extractor, keeps_left = within(node, self._extractor), self._keeps_left
        encode, hash_of = self._serdes.foreign_key_encoder(node), self._serdes.hasher(node)
        forward, failed, context = node.forward, node.failed, node.record
        version = 0 if upgrades_from(node, _SUBSCRIPTIONS_WITHOUT_PARTITION_UNTIL) else 1

        def differ(new: Any, old: Any) -> bool:
            return new is None or encode(new) != encode(old)

        def subscriptions(key: Any, new: Any, old: Any) -> list[tuple[Any, Instruction]]:
            old_key = None if old is None else extractor(key, old)
            new_key = None if new is None else extractor(key, new)
            if keeps_left:
                wanted = [(new_key, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]
                if old_key is not None and differ(new_key, old_key):
                    wanted.insert(0, (old_key, Instruction.DELETE_KEY_NO_PROPAGATE))
                return wanted
            if new_key is None:
                if new is not None:
                    node.dropped(_NULL_FOREIGN_KEY)
                return [] if old_key is None else [(old_key, Instruction.DELETE_KEY_AND_PROPAGATE)]
            if old_key is not None and differ(new_key, old_key):
                return [
                    (old_key, Instruction.DELETE_KEY_NO_PROPAGATE),
                    (new_key, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE),
                ]
            return [(new_key, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)]

        def process(key: Any, change: Any, timestamp_ms: int) -> None:
            new, old = change
            if new is None and old is None:
                return
            try:
                wanted = subscriptions(key, new, old)
                hashed = None if new is None or not wanted else hash_of(new)
            except Exception as error:
                failed(error, key, change, timestamp_ms)
                return
            for foreign_key, instruction in wanted:
                partition = context.partition
                forward(foreign_key, Subscription(hashed, instruction, key, partition, version), timestamp_ms)

        return latest_only(self._left, at_its_time(node, process, self._extractor), node.dropped)


class SubscriptionReceive:
    """Stores or deletes subscriptions and forwards them with the key (foreign key, primary key)."""

    replayable = True

    def __init__(self, store: str, serdes: ForeignKeySerdes) -> None:
        self._store = store
        self._serdes = serdes

    def bind(self, node: NodeContext) -> Process:
        store, forward, failed, context = node.store(self._store), node.forward, node.failed, node.record
        encode_foreign = self._serdes.foreign_key_encoder(node)
        encode_primary = self._serdes.primary_key_encoder(node)

        def process(key: Any, subscription: Any, timestamp_ms: int) -> None:
            instruction, primary_key = subscription[1], subscription[2]
            if key is None:
                if instruction != Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
                    node.dropped(_NULL_FOREIGN_KEY)
                    return
            else:
                context.timestamp = timestamp_ms
                try:
                    place = subscription_key(encode_foreign(key), encode_primary(primary_key))
                    if instruction <= Instruction.DELETE_KEY_AND_PROPAGATE:
                        store.put(place, None)
                    else:
                        store.put_value(place, subscription, timestamp_ms)
                except Exception as error:
                    failed(error, key, subscription, timestamp_ms)
                    return
            forward((key, primary_key), subscription, timestamp_ms)

        return process


class SubscriptionJoin:
    """Answers a subscription with the current row of the right table."""

    replayable = True

    def __init__(self, right: TableOperator) -> None:
        self._right = right

    def bind(self, node: NodeContext) -> Process:
        read, forward, failed = self._right.reader(node), node.forward, node.failed

        def process(key: Any, subscription: Any, timestamp_ms: int) -> None:
            foreign_key, primary_key = key
            hashed, instruction, _, partition, _ = subscription
            if instruction == Instruction.DELETE_KEY_NO_PROPAGATE:
                return
            try:
                row = None if foreign_key is None else read(foreign_key)
            except Exception as error:
                failed(error, key, subscription, timestamp_ms)
                return
            value = None
            if row is not None:
                timestamp_ms = max(timestamp_ms, row[1])
                if instruction != Instruction.DELETE_KEY_AND_PROPAGATE:
                    value = row[0]
            elif instruction == Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
                return
            forward(primary_key, Response(hashed, value, partition), timestamp_ms)

        return process


class ForeignTableJoin:
    """Answers all subscriptions to a changed row of the right table."""

    replayable = True

    def __init__(self, right: TableOperator, store: str, serdes: ForeignKeySerdes) -> None:
        self._right = right
        self._store = store
        self._serdes = serdes

    def bind(self, node: NodeContext) -> Process:
        scan, forward, failed = node.store(self._store).under, node.forward, node.failed
        encode, decode = self._serdes.foreign_key_encoder(node), self._serdes.primary_key_decoder(node)

        def process(key: Any, change: Any, timestamp_ms: int) -> None:
            if key is None:
                node.dropped(_NULL_FOREIGN_KEY)
                return
            try:
                prefix = subscription_prefix(encode(key))
                answers = [
                    (decode(place[len(prefix) :]), Response(stored[0].hash, change[0], stored[0].partition))
                    for place, stored in scan(prefix)
                ]
            except Exception as error:
                failed(error, key, change, timestamp_ms)
                return
            for primary_key, response in answers:
                forward(primary_key, response, timestamp_ms)

        return latest_only(self._right, process, node.dropped)


class ResponseJoin:
    """Joins a response with the left row of its subscription, if that row is unchanged.

    ``joiner`` is called with key, left value and right value. The response has the hash of the row's bytes. Kafka
    Streams compares it with the hash of the row serialized again. That hash differs if the type of the row got a new
    field with a default, or if its bytes have no fixed order. In these cases the hash of the stored bytes is compared.
    """

    replayable = True

    def __init__(
        self, left: TableOperator, joiner: Callable[[Any, Any, Any], Any], serdes: ForeignKeySerdes, *, keeps_left: bool
    ) -> None:
        self._left = left
        self._joiner = joiner
        self._serdes = serdes
        self._keeps_left = keeps_left

    def bind(self, node: NodeContext) -> Process:
        read, joiner, keeps_left = self._left.reader(node), within(node, self._joiner), self._keeps_left
        hash_of, forward, failed = self._serdes.hasher(node), node.forward, node.failed
        read_data = None if node.reference_behaviour else self._left.data_reader(node)

        def is_unchanged(key: Any, row: tuple[Any, int] | None, hashed: bytes | None) -> bool:
            if row is None or hashed is None:
                return row is None and hashed is None
            if hashed == hash_of(row[0]):
                return True
            data = None if read_data is None else read_data(key)
            return data is not None and hashed == murmur3_128(data)

        def process(key: Any, response: Any, timestamp_ms: int) -> None:
            hashed, right, _ = response
            try:
                row = read(key)
                if not is_unchanged(key, row, hashed):
                    node.dropped("outdated: the left row of a foreign-key join has changed since")
                    return
                joined = None
                if row is not None and (right is not None or keeps_left):
                    joined = joiner(key, row[0], right)
                elif right is not None:
                    joined = joiner(key, None, right)
            except Exception as error:
                failed(error, key, response, timestamp_ms)
                return
            forward(key, joined, timestamp_ms)

        return at_its_time(node, process, self._joiner)
