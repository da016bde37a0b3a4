"""Snapshots: copies of tasks' stores outside the machine, so that a task on an empty disk need not replay changelogs.

:mod:`.manifest` describes the content of a snapshot, :mod:`.storage` reads and writes the shared storage, and
:mod:`.snapshots` uploads and downloads snapshots.
"""
