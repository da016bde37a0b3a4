"""The iteration order of Java's hash maps and sets, for decisions that depend on it.

Several of Kafka Streams' placement rules iterate a ``HashMap`` or ``HashSet`` of task or process ids and take the first
match. This order is not random: the classes of these ids define the hash codes, and the hash table is deterministic,
too. A Python leader that iterates in the same order assigns the same tasks to the same clients as a Java leader of the
same group. So leadership can move between the two.

The hash table has a power of two of buckets. A new key goes to the end of its bucket's chain. The table doubles when it
is more than three quarters full, and chains keep their order. An iteration visits the buckets in order. So the final
order is a stable sort by bucket, and only the number of buckets is hard to find: a table below 64 buckets also doubles
when a chain gets its ninth key. In larger tables Java turns longer chains into trees. That requires nine ids with the
same full hash and is not implemented here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, TypeVar

from streams_protocol.types import ProcessId, TaskId

K = TypeVar("K")

DEFAULT_BUCKETS: Final = 16
_MASK: Final = 0xFFFFFFFF
_CHAIN_MAX: Final = 8
_TREE_BUCKETS_MIN: Final = 64
CHAINS_MATTER_MAX: Final = 48
"""Maximum number of keys for which the size of a table can depend on its chains.

With more keys (three quarters of 64 buckets) it depends only on their number.
"""


class HashSizing(Enum):
    """The JDK whose rule sizes a table copied from a collection. The rules differ for few sizes."""

    JDK_18_AND_OLDER = "jdk<=18"
    JDK_19_AND_NEWER = "jdk>=19"


def string_hash(text: str) -> int:
    """Return Java's ``String.hashCode`` as an unsigned 32-bit number."""
    h = 0
    if text.isascii():
        for char in text:
            h = (31 * h + ord(char)) & _MASK
        return h
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        h = (31 * h + (units[i] << 8 | units[i + 1])) & _MASK
    return h


def task_hash(task: TaskId) -> int:
    """Return Kafka Streams' ``TaskId.hashCode`` as an unsigned 32-bit number."""
    name = string_hash(task.name) if task.name else 0
    return (((31 + task.subtopology) * 31 + task.partition) * 31 + name) & _MASK


def process_hash(process_id: ProcessId) -> int:
    """Return Java's ``UUID.hashCode`` as an unsigned 32-bit number."""
    x = process_id.high ^ process_id.low
    return ((x >> 32) ^ x) & _MASK


def in_hash_order(keys: Iterable[K], hash_of: Callable[[K], int], *, buckets: int = DEFAULT_BUCKETS) -> list[K]:
    """Return the distinct keys in the iteration order of a Java hash table.

    ``keys`` are in insertion order. The table starts with ``buckets`` buckets.
    """
    hashed = []
    for key in keys:
        h = hash_of(key)
        hashed.append((h ^ (h >> 16), key))
    last = table_buckets([h for h, _ in hashed], buckets) - 1
    hashed.sort(key=lambda pair: pair[0] & last)
    return [key for _, key in hashed]


def buckets_by_size(size: int, buckets: int = DEFAULT_BUCKETS) -> int:
    """Return the number of buckets after inserting ``size`` keys, if no chain gets long.

    With more than 48 keys chains have no influence.
    """
    while size > 0.75 * buckets:
        buckets *= 2
    return buckets


def table_buckets(spread_hashes: Sequence[int], buckets: int = DEFAULT_BUCKETS) -> int:
    """Return the number of buckets after inserting keys with these mixed hashes, in this order."""
    if len(spread_hashes) > CHAINS_MATTER_MAX:
        return buckets_by_size(len(spread_hashes), buckets)
    size, inserted = 0, iter(spread_hashes)
    while buckets < _TREE_BUCKETS_MIN:  # only below this size can a long chain double the table
        chains: dict[int, int] = {}
        for h in spread_hashes[:size]:
            chains[h & (buckets - 1)] = chains.get(h & (buckets - 1), 0) + 1
        for h in inserted:
            bucket = h & (buckets - 1)
            chains[bucket] = chains.get(bucket, 0) + 1
            size += 1
            doublings = (chains[bucket] > _CHAIN_MAX and buckets < _TREE_BUCKETS_MIN) + 0
            if size > 0.75 * (buckets << doublings):
                doublings += 1
            if doublings:
                buckets <<= doublings
                break
        else:
            return buckets
    return buckets_by_size(len(spread_hashes), buckets)


def set_copy_buckets(size: int, sizing: HashSizing) -> int:
    """Return the initial buckets of a hash set copied from a collection of ``size`` elements."""
    if sizing is HashSizing.JDK_18_AND_OLDER:
        wanted = max(4 * size // 3 + 1, DEFAULT_BUCKETS)
    else:
        wanted = max(-(-4 * size // 3), DEFAULT_BUCKETS)
    return 1 << (wanted - 1).bit_length()
