"""librdkafka's C functions, from the very copy that confluent-kafka uses.

The Python binding does not offer all of them. What it is linked with is found through the binding itself, so there
are never two copies in one process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka.cimpl

from streams_py.errors import UnsupportedOperationError

__all__ = ["Signatures", "librdkafka"]

Signatures = Mapping[str, tuple[Any, Sequence[Any]]]
"""Function name -> (result type, argument types), as ctypes has them."""


def librdkafka(signatures: Signatures) -> Any:
    """The library with these functions declared; UnsupportedOperationError when it lacks one of them."""
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
