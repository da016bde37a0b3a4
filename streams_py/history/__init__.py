"""Topologies over old records: which topologies can run, the order of stages, and the run of one task.

A topology that runs live also runs over months of stored records. Its sub-topologies are *stages*, ordered in the
direction of the data. Each task of a stage reads its partitions from the first record to the last one. It processes
records in the order of a live task that has all of them buffered. :mod:`streams_py.spark.history` distributes the tasks
over machines. This package does not use Spark or Arrow.
"""
