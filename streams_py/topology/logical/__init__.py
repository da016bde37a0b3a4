"""The logical graph of the DSL calls, which is optimised and written into the topology."""
