"""The facts about a topology that matter to the state of another version.

They are plain values, derived from a topology or from text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Subtopologies = Mapping[int, tuple[frozenset[str], frozenset[str]]]
"""Source topics and stores of each sub-topology with tasks, by id.

Sub-topologies that only fill a global store are not included.
"""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The origin of a store's or topic's content, from the most to the least exact description.

    ``exact``: all preceding operators with the code of their functions (None if unknown). ``kinds``: all preceding
    operators. ``origin``: the operator that writes it, and all input topics.
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
    """A store, or a topic between two sub-topologies.

    ``details`` maps properties to values, as text; empty if unknown. ``where`` is the line of the program, if known.
    """

    name: str
    lineage: Lineage
    details: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """One version of a topology.

    ``stores``: stores with tasks, by name. ``repartitions``: by short topic name. ``globals``: global stores.
    ``is_text``: it was read from a description, which has no serdes, windows and partitions.
    """

    stores: Mapping[str, Part]
    repartitions: Mapping[str, Part]
    globals: Mapping[str, Part]
    subtopologies: Subtopologies
    is_text: bool = False

    def subtopology_of(self, store: str) -> int | None:
        """Return the number of the sub-topology that has a store, or None."""
        return next((id for id, (_, stores) in self.subtopologies.items() if store in stores), None)
