"""A recorded history lived through once more, by each candidate with a group of its own.

:mod:`.outside` says what happened to a group from outside, :mod:`.segments` cuts a history, :mod:`.world` lets the same
happen to a candidate's group, :mod:`.way` adds up what the way to rest costs, :mod:`.replaying` makes rows of it.
"""
