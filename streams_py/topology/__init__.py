"""The topology of an application: the DSL, the Processor API, and the graph that both build.

Calls of :class:`.dsl.builder.StreamsBuilder` and its streams build a logical graph (:mod:`.logical.graph`). The graph
is optimised (:mod:`.logical.optimise`) and written as nodes into an assembly (:mod:`.physical.assembly`). The nodes are
divided into numbered sub-topologies (:mod:`.physical.subtopologies`). A task binds the operators of one sub-topology
(:mod:`.operators`) into nested functions. The package is pure: no clock, no threads, no clients.
"""
