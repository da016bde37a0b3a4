"""Decides which worker runs each connector and task.

:mod:`.cooperative` computes one round of an incremental group (KIP-415), including the static placement of KIP-987
(:mod:`.static`). :mod:`.eager` assigns all jobs again in each round. :mod:`.leader` decodes the members' data, agrees
on the config offset and encodes the assignments. Members, connectors and tasks are always processed in ascending order,
so that equal input gives equal output.
"""
