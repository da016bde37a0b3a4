"""One metric of a process."""

from __future__ import annotations

from typing import NamedTuple


class Measured(NamedTuple):
    """One metric. ``tags`` are Kafka's, in Kafka's order. A text value describes a state, a version or a name."""

    group: str
    tags: tuple[tuple[str, str], ...]
    name: str
    value: float | str
