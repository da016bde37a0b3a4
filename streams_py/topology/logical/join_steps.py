"""The logical node of a join of two streams."""

from __future__ import annotations

from dataclasses import dataclass

from streams_py.topology.declare.nodes import Operator, ProcessorNode
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.logical.graph import GraphNode, ProcessorStep, Traits
from streams_py.topology.operators.stateless import PassThrough
from streams_py.topology.operators.windowed_joins import JoinRule, SelfJoin
from streams_py.topology.physical.assembly import TopologyAssembly


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One side of a join: the node that stores its records, its store, and the join operator."""

    keeper: ProcessorStep
    store: StoreBuilder
    name: str
    operator: Operator


class StreamJoinStep(GraphNode):
    """Joins two streams. The streams are the parents of this step and of the storing nodes.

    ``self_join`` replaces all of it if both sides are the same stream and this is requested.
    """

    def __init__(
        self,
        name: str,
        left: JoinSide,
        right: JoinSide,
        pending: StoreBuilder | None,
        self_join: SelfJoin,
        rule: JoinRule,
        *,
        accepts_null_keys: bool,
    ) -> None:
        super().__init__(name, Traits(accepts_null_keys=accepts_null_keys))
        self.left = left
        self.right = right
        self._pending = pending
        self._self_join = self_join
        self._rule = rule
        self.is_self_join = False

    @property
    def is_of_one_stream(self) -> bool:
        """Whether both sides are the same stream."""
        return len(self.parents) == 1

    @property
    def needs_one_store(self) -> bool:
        """Whether one copy of the records is enough to find all results.

        In a left or outer join whose window does not contain the record itself, records wait for a partner, which
        requires a second store.
        """
        return self.is_of_one_stream and (self._pending is None or self._rule.windows.contains_itself)

    def write(self, assembly: TopologyAssembly) -> None:
        left, right = self.left, self.right
        self._rule.of_one_stream = self.is_of_one_stream
        if self.is_self_join:
            assembly.add_processor(ProcessorNode(self.name, (left.keeper.name,), self._self_join))
            assembly.add_store(left.store, [left.keeper.name, self.name])
            return
        for side in (left, right):
            assembly.add_processor(ProcessorNode(side.name, (side.keeper.name,), side.operator))
        assembly.add_processor(ProcessorNode(self.name, (left.name, right.name), PassThrough()))
        assembly.add_store(left.store, [left.keeper.name, right.name])
        assembly.add_store(right.store, [right.keeper.name, left.name])
        if self._pending is not None:
            assembly.add_store(self._pending, [left.name, right.name])
