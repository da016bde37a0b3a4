"""Detection of missing serdes before the start, with the line of the program."""

from __future__ import annotations

from typing import Any

from streams_py.errors import ConfigError
from streams_py.serdes import Serde, SerdeDefaults, serde_or_default
from streams_py.topology.declare.nodes import ProcessorNode, SinkNode, SourceNode
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.formats.change_serde import ChangeSerde
from streams_py.topology.formats.foreign_keys import ResponseSerde
from streams_py.topology.topology import Topology


def check_serdes(topology: Topology, defaults: SerdeDefaults) -> None:
    """Raise ConfigError for the first source, sink or store without a serde.

    ``defaults`` are the configured serdes.
    """
    for node in topology.nodes:
        if isinstance(node, ProcessorNode):
            continue
        if isinstance(node, SourceNode):
            topics = ", ".join(node.topics) if node.pattern is None else node.pattern.pattern
            what = f"{node.name}, which reads {topics}"
        else:
            what = f"{node.name}, which writes {node.topic or 'topics of your choice'}"
        _check(node, defaults, what, topology.where(node.name))
    for name, store in topology.stores.items():
        if store.kind is StoreKind.CUSTOM:
            continue  # it encodes its state itself
        user = next(iter(topology.processors_of(name)), None)
        what = f"store {name}" if user is None else f"store {name} of {user}"
        _check(store, defaults, f"{what}, which is kept here", None if user is None else topology.where(user))


def _check(entry: SourceNode | SinkNode | StoreBuilder, defaults: SerdeDefaults, what: str, line: str | None) -> None:
    for part, given in (("key", entry.key_serde), ("value", entry.value_serde)):
        if _is_missing(serde_or_default(given, defaults, is_key=part == "key")):
            setting = f"default.{part}.serde"
            raise ConfigError(
                f"{what}, has no {part} serde{'' if line is None else f' ({line})'}: set {part}= there, or where the "
                f"stream gets its {part}s, or StreamsBuilder({part}=...), or set {setting}",
                key=setting,
            )


def _is_missing(serde: Serde[Any] | None) -> bool:
    """Whether the serde, or the inner serde of an internal topic's format, is missing."""
    return serde is None or (isinstance(serde, ChangeSerde | ResponseSerde) and _is_missing(serde.inner))
