"""Creates the factory of Kafka clients that the configuration names."""

from __future__ import annotations

from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.ports import Clients


def clients_of(config: StreamsConfig) -> Clients:
    """Call ``default.client.supplier``, a class or callable, with the configuration and return the client factory."""
    supplier = config.default_client_supplier
    if isinstance(supplier, str):
        from streams_py.runtime.tasks.settings.configured import imported

        supplier = imported(supplier, "default.client.supplier")
    if not callable(supplier):
        raise ConfigError(f"default.client.supplier = {supplier!r} is not callable", key="default.client.supplier")
    clients: Clients = supplier(config)
    return clients
