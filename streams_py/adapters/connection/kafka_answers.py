"""Load kafka-python without warnings, and build its response classes before there are several threads.

kafka-python builds the class for a version of a response when the first such response arrives, and registers it as a
weak reference. If two network threads build the same class concurrently, a dead reference may remain registered. From
then on, no client of this process can read that kind of response (ReferenceError). An import runs on one thread, so
importing this module builds all classes (262 classes in 10 ms). It also builds the decoders of the group protocol's
responses, which are composed from shared state too.

While it is loaded, the library reads hundreds of files with a deprecated function of Python. Without the filter, the
test run of a user would end with a page of warnings.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.coordinator.consumer  # noqa: F401  # registers the group protocol's answers
    from kafka import KafkaAdminClient, KafkaProducer  # noqa: F401
    from kafka.protocol.api_header import ResponseClassRegistry

_GROUP_PROTOCOL: Final = frozenset({3, 8, 9, 10, 11, 12, 13, 14, 17, 18, 36})
"""API keys of the metadata, offset, coordinator, group, login and version requests."""


def answer_classes() -> list[Any]:
    """Return the response classes of all versions; build those that don't exist yet."""
    return [
        answers[version]
        for answers in (
            registered[None] for registered in list(ResponseClassRegistry._response_class_registry.values())
        )
        for version in range(answers.max_version + 1)
    ]


_KEPT: Final = answer_classes()

for _kind in _KEPT:
    if _kind.API_KEY in _GROUP_PROTOCOL:
        _flexible = _kind.flexible_version_q(_kind._class_version)
        _kind._struct.compiled_decode_from(
            _kind._class_version, compact=_flexible, tagged=_flexible, data_class=_kind[None]
        )
