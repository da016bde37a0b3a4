"""Topics for an application that is about to start: what scripts and examples need of administration."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from streams_py.clients.factory import KafkaClients
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import StreamsError
from streams_py.ports import AdminErrorKind, TopicSpec

__all__ = ["create_topics"]


def create_topics(config: StreamsConfig | Mapping[str, Any] | str | os.PathLike[str], *topics: TopicSpec) -> None:
    """Create topics on the cluster of ``bootstrap.servers``, with the application's own settings and security.

    A topic that exists stays as it is, whatever its partition count. StreamsError names what could not be created,
    BrokerUnavailableError says that nobody answered, ConfigError what is wrong with ``config``.
    """
    with contextlib.closing(KafkaClients(StreamsConfig.of(config))) as clients:
        created = clients.admin().create_topics(topics)
    failed = {
        name: error.message
        for name, error in created.items()
        if error is not None and error.kind is not AdminErrorKind.ALREADY_EXISTS
    }
    if failed:
        raise StreamsError(f"cannot create {'; '.join(f'topic {name}: {why}' for name, why in failed.items())}")
