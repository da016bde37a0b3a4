"""What an application does with its records: the DSL, the Processor API, and the topology both of them describe.

The journey of a program: calls on :class:`.dsl.builder.StreamsBuilder` and its streams build a logical graph
(:mod:`.logical.graph`), which is optimised (:mod:`.logical.optimise`) and written as nodes into an assembly
(:mod:`.physical.assembly`). The nodes fall into numbered sub-topologies (:mod:`.physical.subtopologies`); a task binds
the operators of one of them (:mod:`.operators`) into nested functions. Pure: no clock, no threads, no clients.
"""
