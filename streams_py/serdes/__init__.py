"""Serdes convert keys and values to bytes and back. The bytes are identical to those of Kafka's ``Serdes``.

Ready-made serdes are constants (``STRING``, ``INT64``, ...). Serdes with arguments are functions (:func:`string`,
:func:`json`, :func:`msgpack`, :func:`list_of`, :func:`time_windowed`, :func:`session_windowed`). With a schema
registry, use :class:`streams_py.SchemaRegistry`. For custom serdes, use :func:`serde` with two functions, or a subclass
of :class:`Serde`. No serde executes the data that it reads (no pickle).

==============  ==========================  =================
constant        Kafka's ``Serdes.``         Python type
==============  ==========================  =================
``BYTES``       ``ByteArray()``             bytes
``STRING``      ``String()``                str
``INT16``       ``Short()``                 int
``INT32``       ``Integer()``               int
``INT64``       ``Long()``                  int
``FLOAT32``     ``Float()``                 float
``FLOAT64``     ``Double()``                float
``UUID``        ``UUID()``                  uuid.UUID
``BOOL``        ``Boolean()``               bool
``VOID``        ``Void()``                  None
``JSON``        (none)                      any JSON value
==============  ==========================  =================
"""

from __future__ import annotations

from streams_py.serdes.basic import BOOL, BYTES, FLOAT32, FLOAT64, INT16, INT32, INT64, STRING, UUID, VOID, string
from streams_py.serdes.failures import cannot_decode, cannot_encode
from streams_py.serdes.json import JSON, json
from streams_py.serdes.lists import list_of
from streams_py.serdes.msgpack import msgpack
from streams_py.serdes.named import resolve_serde
from streams_py.serdes.serde import Serde, SerdeDefaults, serde, serde_or_default
from streams_py.serdes.windowed import Windowed, session_windowed, time_windowed

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT32",
    "FLOAT64",
    "INT16",
    "INT32",
    "INT64",
    "JSON",
    "STRING",
    "UUID",
    "VOID",
    "Serde",
    "SerdeDefaults",
    "Windowed",
    "cannot_decode",
    "cannot_encode",
    "json",
    "list_of",
    "msgpack",
    "resolve_serde",
    "serde",
    "serde_or_default",
    "session_windowed",
    "string",
    "time_windowed",
]
