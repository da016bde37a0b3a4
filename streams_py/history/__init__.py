"""Applications over history: what may run there, in which order, and one task's run. Knows no Spark and no Arrow.

A topology that runs live also runs over months of records that are there already. Its sub-topologies are *stages* in
the direction of the data; each task of a stage reads its partitions from the first record to the last one, in the
order in which a live task with everything buffered would have taken them. :mod:`streams_py.spark.history` spreads the
tasks over machines.
"""
