"""Joins of two tables by their key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from streams_py.topology.declare.in_context import rearranged
from streams_py.topology.declare.names import Prefix, name_or_generate, suffixed_or_generate
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.dsl.place import Place
from streams_py.topology.logical.graph import TableJoinStep
from streams_py.topology.operators.table_joins import TableJoin, TableJoinMerge
from streams_py.topology.operators.tables import TableOperator


def join_tables(
    left: tuple[Place, TableOperator],
    right: tuple[Place, TableOperator],
    joiner: Any,
    options: Materialized[Any, Any] | None,
    name: str | None,
    *,
    keeps_left: bool,
    keeps_right: bool,
) -> tuple[Place, TableOperator]:
    """Attach a join of two tables by key. Return the place below it and the operator of the result."""
    (here, left_table), (there, right_table) = left, right
    index = here.index
    kept = None
    if options is not None:
        kept = dataclasses.replace(options, store=options.store or index.store_name(Prefix.TABLE_MERGE))
    merge_name = name_or_generate(name, index, Prefix.TABLE_MERGE)
    sources = here.graph.copartition(here.sources | there.sources, merge_name)
    if keeps_left:
        left_table.enable_old_values(force=True)
    if keeps_right:
        right_table.enable_old_values(force=True)

    def reverse(joiner: Callable[..., Any]) -> Callable[..., Any]:
        return lambda key, right, left, *record: joiner(key, left, right, *record)

    of_left = TableJoin(left_table, right_table, joiner, keeps_this=keeps_left, keeps_other=keeps_right)
    of_right = TableJoin(
        right_table, left_table, rearranged(joiner, reverse), keeps_this=keeps_right, keeps_other=keeps_left
    )
    left_name = suffixed_or_generate(name, "-join-this", index, Prefix.TABLE_JOIN_THIS)
    right_name = suffixed_or_generate(name, "-join-other", index, Prefix.TABLE_JOIN_OTHER)
    merge = TableJoinMerge(of_left, of_right, "" if kept is None else kept.store or "")
    builders = [] if kept is None else [kept.builder(merge.store_name, here.key_serde, None)]
    step = TableJoinStep(
        (left_name, right_name, merge_name), (here.node, there.node), of_left, of_right, merge, builders
    )
    here.graph.attach(step, here.node, there.node)
    key_serde = builders[0].key_serde if builders else here.key_serde
    value_serde = builders[0].value_serde if builders else None
    place = Place(here.graph, step, key_serde, value_serde, sources)
    return place, merge
