"""Splitting a stream: each record goes to the first branch whose predicate holds (KIP-418)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from streams_py.errors import TopologyError
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.given_serdes import kind_of
from streams_py.topology.declare.in_context import one_function
from streams_py.topology.declare.names import Prefix, check_name, name_or_generate
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.dsl.place import Place
from streams_py.topology.logical.graph import ProcessorStep
from streams_py.topology.operators.stateless import Branch, PassThrough

if TYPE_CHECKING:
    from streams_py.topology.dsl.kstream import KStream

__all__ = ["BranchedKStream"]

K = TypeVar("K")
V = TypeVar("V")


@checked
class BranchedKStream(Generic[K, V]):
    """A stream being split; ends with :meth:`default_branch` or :meth:`no_default_branch`.

    Branches are called ``<split name><branch name>``, where the name of an unnamed branch is its number from 1 (the
    default branch: 0). Those are also the keys of the result.
    """

    def __init__(self, place: Place, name: str | None) -> None:
        self._operator = Branch()
        self._name = name_or_generate(name, place.index, Prefix.BRANCH)
        self._place = place.then(ProcessorStep(self._name, self._operator))
        self._branches: dict[str, KStream[K, V]] = {}
        self._count = 0
        self._is_complete = False

    def branch(
        self,
        predicate: Callable[[K, V], object] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], object] | None = None,
        name: str | None = None,
        chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> BranchedKStream[K, V]:
        """Records for which ``predicate(key, value)`` is true and no earlier one was; ``with_context=f`` for an
        ``f(key, value, record)``.

        ``chain`` gets the branch; what it returns takes the branch's place in the result, None leaves it out.
        """
        checked_predicate = one_function(predicate, with_context, "branch needs one function: f(key, value)")
        self._count += 1
        child = self._add(self._count, name, chain)
        self._operator.predicates.append(checked_predicate)
        self._operator.children.append(child)
        return self

    def default_branch(
        self, *, name: str | None = None, chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None
    ) -> dict[str, KStream[K, V]]:
        """All other records; gives the branches by name."""
        self._operator.default = self._add(0, name, chain)
        return self.no_default_branch()

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Drop all other records; gives the branches by name."""
        self._is_complete = True
        return self._branches

    def _add(self, number: int, name: str | None, chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None) -> str:
        from streams_py.topology.dsl.kstream import KStream  # streams can be split, branches are streams

        if self._is_complete:
            raise TopologyError(f"the split {self._name!r} is complete; add branches before default_branch()")
        own_name = str(number) if name is None else check_name(name)
        child = check_name(f"{self._name}{own_name}")
        self._place.index.node_name(Prefix.BRANCH)  # every branch takes a value, which its name does not show
        stream = KStream[K, V](self._place.then(ProcessorStep(child, PassThrough())))
        result = stream if chain is None else chain(stream)
        if isinstance(result, KStream):
            self._branches[child] = result
        elif result is not None:
            raise TopologyError(
                f"the chain of branch {child!r} returned something {kind_of(result)}; return what takes the "
                "branch's place, a KStream, or None"
            )
        return child
