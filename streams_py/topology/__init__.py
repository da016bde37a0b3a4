"""What an application does with its records: the DSL, the Processor API, and the topology both of them describe.

The journey of a program: calls on :class:`.builder.StreamsBuilder` and its streams build a logical graph
(:mod:`.graph`), which is optimised (:mod:`.optimise`) and written as nodes into an assembly (:mod:`.assembly`). The
nodes fall into numbered sub-topologies (:mod:`.subtopologies`); a task binds the operators of one of them
(:mod:`.operators`) into nested functions. Pure: no clock, no threads, no clients.
"""
