"""Which records of a topic a task passes over, because they cannot be read: they take no part in the order of records.

Several topics are put in order by the timestamps at their heads, before a task has seen them. A record that a task
cannot read never is a head, so its timestamp must not count, however large it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from streams_py.errors import BrokerUnavailableError, RegistryError
from streams_py.history.task import StageOrders
from streams_py.runtime.tasks.record.sources import source_readers
from streams_py.runtime.tasks.settings.handlers import log_and_fail
from streams_py.topology.declare.nodes import SourceNode

__all__ = ["IsReadable", "readable_in"]

IsReadable: TypeAlias = "Callable[[bytes | None, bytes | None], bool]"
"""Called with key and value."""


def readable_in(orders: StageOrders, topic: str) -> IsReadable | None:
    """For the records of one topic. None when all count: the first one that cannot be read ends the run then."""
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
        except (BrokerUnavailableError, RegistryError):  # says nothing about the record
            raise
        except Exception:  # whatever a serde raises
            return False
        return True

    return is_readable


def _nothing(key: object, value: object, timestamp_ms: int) -> None:
    raise AssertionError("nothing is processed here")
