"""Finds records that a task skips because it cannot deserialize them. They do not influence the order of records.

Records of several topics are ordered by the timestamps at the head of each topic, before a task processes them. A live
task never has a record at a head that it cannot deserialize. So the timestamp of such a record must not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from streams_py.errors import BrokerUnavailableError, RegistryError
from streams_py.history.task import StageOrders
from streams_py.runtime.tasks.record.sources import source_readers
from streams_py.runtime.tasks.settings.handlers import log_and_fail
from streams_py.topology.declare.nodes import SourceNode

IsReadable: TypeAlias = "Callable[[bytes | None, bytes | None], bool]"
"""Function of key and value: whether the record can be deserialized."""


def readable_in(orders: StageOrders, topic: str) -> IsReadable | None:
    """Return the check for records of one topic.

    None when all records count: the first record that cannot be deserialized then stops the run.
    """
    if orders.settings().deserialization_handler is log_and_fail:
        return None
    made = orders.load()
    functions = {node.name: _nothing for node in made.nodes.nodes if isinstance(node, SourceNode)}
    reader = source_readers(made.nodes.nodes, made.settings, [topic], functions)[topic]
    decode_key, decode_value = reader.decode_key, reader.decode_value

    def is_readable(key: bytes | None, value: bytes | None) -> bool:
        try:
            if key is not None:
                decode_key(key)
            if value is not None:
                decode_value(value)
        except (BrokerUnavailableError, RegistryError):  # not a property of the record
            raise
        except Exception:  # serdes raise any type
            return False
        return True

    return is_readable


def _nothing(key: object, value: object, timestamp_ms: int) -> None:
    raise AssertionError("nothing is processed here")
