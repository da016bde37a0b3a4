"""What must stay the same while a plan is in progress: the topology, and the settings that determine the results.

A step with another ``--config``, or without one, would read other values or skip other records, even if the topology is
the same. A plan contains hashes of these settings and not their values, because values may be confidential.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.topology.declare.nodes import SinkNode, SourceNode
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.topology import Topology


def fingerprint_of(topology: Topology) -> str:
    """Return a hash of nodes, stores and their serdes.

    Default serdes are not included: :func:`marks_of` covers them.
    """
    stores = sorted(
        f"{name} {store.kind.value} {store.windows} {_serdes_of(store)}" for name, store in topology.stores.items()
    )
    ends = sorted(
        f"{node.name} {_serdes_of(node)}"
        for sub in topology.subtopologies()
        for node in sub.nodes
        if isinstance(node, SourceNode | SinkNode)
    )
    return hashlib.sha256("\n".join((topology.describe(), *stores, *ends)).encode()).hexdigest()


def _serdes_of(part: StoreBuilder | SourceNode | SinkNode) -> str:
    return f"{part.key_serde and part.key_serde.name} {part.value_serde and part.value_serde.name}"


_FIELDS: Final = (
    "default_key_serde",
    "default_value_serde",
    "default_timestamp_extractor",
    "deserialization_exception_handler",
    "dsl_store_suppliers_class",  # determines the order in which windows and sessions, and so final results, are listed
    "processing_exception_handler",
    "production_exception_handler",
    "topology_optimization",
    "upgrade_from",
)
_DIGITS: Final = 12


def marks_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return key -> hash of its value, for all settings that determine results.

    These are settings of the library, including their defaults, and all settings of the user's code (``app.``).
    """
    checked = StreamsConfig.of({"bootstrap.servers": "embedded", **config})
    own = {f"app.{key}": value for key, value in checked.app.items()}
    return {name.replace("_", "."): _mark(getattr(checked, name)) for name in _FIELDS} | {
        key: _mark(value) for key, value in sorted(own.items())
    }


def check_settings(marks: Mapping[str, str], config: Mapping[str, Any], plan: str) -> None:
    """Raise ConfigError when a setting has changed since ``plan`` was made."""
    now = marks_of(config)
    for key in sorted({*marks, *now}) if marks else ():
        if marks.get(key) != now.get(key):
            raise ConfigError(
                f"{key} has changed since {plan} was made, and it affects the results; pass the same --config, or make "
                "a new plan",
                key=key,
            )


def _mark(value: object) -> str:
    text = getattr(value, "__qualname__", None) or repr(value)
    return hashlib.sha256(str(text).encode()).hexdigest()[:_DIGITS]
