"""Tables about the rebalances and tasks of a group, computed from its assignment events.

Everything here but :mod:`~streams_py.telemetry.bronze` is plain Python over plain values, without Spark: one fold
over the events of a group, in order, whose state can be written down at the end of a day and taken up again.
"""
