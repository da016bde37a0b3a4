"""Who a member is, as librdkafka wants to hear it inside a transaction (KIP-447).

librdkafka takes the metadata of its own consumers only, as bytes in a format of its own. Our member is kafka-python's,
so the bytes are made here::

    "CGMDv2:"  i32 generation (native byte order)  group 00  member 00  i8 1                without an instance id
    "CGMDv2:"  i32 generation (native byte order)  group 00  member 00  i8 0  instance 00   with one

:func:`check_group_metadata` compares that with what the installed library makes; transactions are refused when they
differ, because a broker accepts some wrong metadata without fencing anybody.
"""

from __future__ import annotations

import struct
from functools import cache

from confluent_kafka import Consumer

from streams_py.errors import ConfigError
from streams_py.ports import GroupMetadata

__all__ = ["check_group_metadata", "group_metadata_bytes"]

_MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


def group_metadata_bytes(member: GroupMetadata) -> bytes:
    """What ``send_offsets_to_transaction`` takes for this member."""
    group, member_id = member.group_id.encode() + b"\0", member.member_id.encode() + b"\0"
    instance = b"\1" if member.instance_id is None else b"\0" + member.instance_id.encode() + b"\0"
    return _MAGIC + _GENERATION.pack(member.generation) + group + member_id + instance


@cache
def check_group_metadata() -> None:
    """Raise ConfigError when the installed library has another format."""
    for instance_id in (None, "instance"):
        settings = {"group.id": "group", "bootstrap.servers": ""}
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        consumer = Consumer(settings)
        try:
            found = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        if found != group_metadata_bytes(GroupMetadata("group", -1, "", instance_id)):
            raise ConfigError(
                "processing.guarantee = exactly_once_v2 does not work with this confluent-kafka, whose format of "
                "group metadata is not known here; install the version that streams-py was tested with, or use "
                "at_least_once",
                key="processing.guarantee",
            )
