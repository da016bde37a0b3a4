"""Which worker runs which connector and task.

:mod:`.cooperative` computes one round of an incremental group (KIP-415), with the static placement of KIP-987
(:mod:`.static`) inside it; :mod:`.eager` deals everything anew. :mod:`.leading` reads what the members sent, agrees on
the config offset and writes the answers. Iteration is in one order everywhere (members, connectors by name, tasks by
connector and number), so that equal input gives equal output.
"""
