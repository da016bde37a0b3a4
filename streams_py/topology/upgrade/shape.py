"""What of a topology matters to the state of another version: a plain value, made from a topology or from text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Lineage", "Part", "Shape", "Subtopologies"]

Subtopologies = Mapping[int, tuple[frozenset[str], frozenset[str]]]
"""Id -> source topics, stores. Those that only fill a global store have no tasks and are not in here."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where the content of a store or topic comes from, from the most to the least exact description.

    ``exact``: all operators above with the code of their functions (None when that is not known); ``kinds``: all
    operators above; ``origin``: the operator that writes it, and the topics that everything comes from.
    """

    exact: str | None
    kinds: str
    origin: tuple[str, frozenset[str]]

    @property
    def operator(self) -> str:
        """The operator that writes it."""
        return self.origin[0]


@dataclass(frozen=True, slots=True)
class Part:
    """A store, or a topic between two sub-topologies. ``details``: property -> value, as text; empty when unknown.

    ``where``: line of the program, if known.
    """

    name: str
    lineage: Lineage
    details: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """One version. ``stores``: those with tasks, by name; ``repartitions``: by short topic name; ``globals``: global
    stores. ``is_text``: read from a description, which says nothing about serdes, windows and partitions."""

    stores: Mapping[str, Part]
    repartitions: Mapping[str, Part]
    globals: Mapping[str, Part]
    subtopologies: Subtopologies
    is_text: bool = False

    def subtopology_of(self, store: str) -> int | None:
        """Number of the sub-topology that has a store."""
        return next((id for id, (_, stores) in self.subtopologies.items() if store in stores), None)
