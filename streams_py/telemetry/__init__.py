"""Computes tables about the rebalances and tasks of a group from its assignment events.

The core is one fold over the events of a group, in order. Its state can be saved at the end of a day and loaded again.
Nothing here needs Spark.
"""
