"""kafka-python, loaded without a word, and its answer classes, built before there are threads.

The library builds the class for one version of an answer when the first such answer comes, and registers it as a weak
reference. Two network threads that build the same one at once leave behind a reference to the class that lost, which is
dead: no client of this process can read that kind of answer any more (ReferenceError), for good. An import is made by
one thread, so importing this module builds them all (262 classes in 10 ms), and the decoders of the group protocol's
answers with them, which are put together from state that threads share too.

While it is loaded the library asks Python for hundreds of files in a way that is deprecated; a user's test run would
end with a page of warnings about it.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.coordinator.consumer  # noqa: F401  # registers the group protocol's answers
    from kafka import KafkaAdminClient, KafkaProducer  # noqa: F401
    from kafka.protocol.api_header import ResponseClassRegistry

__all__ = ["answer_classes"]

_GROUP_PROTOCOL: Final = frozenset({3, 8, 9, 10, 11, 12, 13, 14, 17, 18, 36})
"""API keys: metadata, offsets, coordinator, join to sync, log-in, versions."""


def answer_classes() -> list[Any]:
    """Every answer class for every version, built now if it was not."""
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
