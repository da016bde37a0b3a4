"""Copies of tasks' stores outside of the machine, so that an empty disk is filled from a copy and not by replaying.

:mod:`.manifest` says what a snapshot is of, :mod:`.storage` is where they are, :mod:`.snapshots` makes and fetches
them.
"""
