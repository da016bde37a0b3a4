"""Replays a recorded history in a closed loop: each candidate has its own simulated group.

:mod:`.outside` finds the outside events in a history, :mod:`.segments` divides a history, :mod:`.world` applies events
to a candidate's group, :mod:`.way` adds up the costs until the group is at rest, and :mod:`.replaying` creates score
rows.
"""
