"""The logical graph: what the DSL calls said, optimised and written into the physical topology."""
