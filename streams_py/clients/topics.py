"""Create topics before an application starts. For scripts and examples."""

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
    """Create topics on the cluster of ``bootstrap.servers``, with the application's client and security settings.

    An existing topic is not changed, even if it has another partition count.

    Raises:
        StreamsError: Some topics could not be created. The message names them.
        BrokerUnavailableError: No broker responded.
        ConfigError: ``config`` is not valid.
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
