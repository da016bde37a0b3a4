"""What the brokers answer to operators' tools, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kafka import errors as kafka_errors

from streams_protocol.types import TopicPartition
from streams_py.adapters.kafka_python.admin import group_admin
from streams_py.adapters.kafka_python.admin.group_admin import KafkaPythonGroupAdmin
from streams_py.errors import StreamsError


def answering(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> KafkaPythonGroupAdmin:
    class Admin:
        def __init__(self, **_: object) -> None: ...

        def alter_group_offsets(self, group: str, offsets: Mapping[Any, Any]) -> Mapping[Any, type[Exception]]:
            return dict.fromkeys(offsets, error)

    monkeypatch.setattr(group_admin, "KafkaAdminClient", Admin)
    return KafkaPythonGroupAdmin({"bootstrap_servers": ["h:1"]}, timeout_ms=1_000)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (kafka_errors.UnknownMemberIdError, "it has members by now, so no offset was set; stop them"),
        (kafka_errors.TopicAuthorizationFailedError, "--operation READ --topic lines"),
        (kafka_errors.InvalidTopicError, "lines-0: InvalidTopicError"),
    ],
)
def test_offsets_that_are_refused_say_why(monkeypatch: pytest.MonkeyPatch, error: type[Exception], said: str) -> None:
    admin = answering(monkeypatch, error)
    with pytest.raises(StreamsError, match=f"the offsets of group shop cannot be set: .*{said}"):
        admin.set_offsets("shop", {TopicPartition("lines", 0): 3})
