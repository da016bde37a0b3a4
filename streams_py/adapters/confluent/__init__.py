"""Records and administration on librdkafka (confluent-kafka), and the embedded cluster that comes with it.

The names below are loaded at first use. The server process of the embedded cluster also imports this package, needs
none of these names, and must start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams_py.adapters.confluent.clients import ConfluentClients
    from streams_py.adapters.confluent.embedded.cluster import EmbeddedCluster

__all__ = ["ConfluentClients", "EmbeddedCluster"]

_HOMES = {"ConfluentClients": "clients", "EmbeddedCluster": "embedded.cluster"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
