"""librdkafka's C functions, from the copy of the library that confluent-kafka uses.

The Python binding does not expose all of them. The library is located through the binding itself, so a process never
loads two copies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka.cimpl

from streams_py.errors import UnsupportedOperationError

Signatures = Mapping[str, tuple[Any, Sequence[Any]]]
"""Function name -> (result type, argument types), as ctypes types."""


def librdkafka(signatures: Signatures) -> Any:
    """Return the library with these functions declared.

    Raises:
        UnsupportedOperationError: The library lacks one of the functions.
    """
    binding: Any = confluent_kafka.cimpl
    try:
        library = ctypes.CDLL(binding.__file__)
        for function, (result, arguments) in signatures.items():
            symbol = getattr(library, function)
            symbol.restype, symbol.argtypes = result, list(arguments)
    except (AttributeError, OSError) as missing:
        raise UnsupportedOperationError(
            f"the installed confluent-kafka lacks functions of librdkafka that are needed here ({missing}): "
            "install confluent-kafka from its wheel"
        ) from None
    return library
