"""Split of a stream: each record goes to the first branch whose predicate is true (KIP-418)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from streams_py.errors import TopologyError
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.given_types import kind_of
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
    """A stream that is being split. Complete it with :meth:`default_branch` or :meth:`no_default_branch`.

    Branches are named ``<split name><branch name>``. The name of an unnamed branch is its number, starting at 1 (the
    default branch: 0). The names are also the keys of the result.
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
        """Add a branch with the records for which ``predicate(key, value)`` is true.

        A record goes only to its first matching branch. Write ``with_context=f`` for an ``f(key, value, record)``.
        ``chain`` is called with the branch. The stream that it returns replaces the branch in the result; with None the
        result does not have the branch.
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
        """Send all other records to a default branch, and return the branches by name."""
        self._operator.default = self._add(0, name, chain)
        return self.no_default_branch()

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Drop all other records, and return the branches by name."""
        self._is_complete = True
        return self._branches

    def _add(self, number: int, name: str | None, chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None) -> str:
        from streams_py.topology.dsl.kstream import KStream  # KStream imports this module

        if self._is_complete:
            raise TopologyError(f"the split {self._name!r} is complete; add branches before default_branch()")
        own_name = str(number) if name is None else check_name(name)
        child = check_name(f"{self._name}{own_name}")
        # Every branch takes a number of the counter, which its name does not contain.
        self._place.index.node_name(Prefix.BRANCH)
        stream = KStream[K, V](self._place.then(ProcessorStep(child, PassThrough())))
        result = stream if chain is None else chain(stream)
        if isinstance(result, KStream):
            self._branches[child] = result
        elif result is not None:
            raise TopologyError(
                f"the chain of branch {child!r} returned a value {kind_of(result)}; return the KStream that replaces "
                "the branch, or None"
            )
        return child
