"""A running group, Java or Python: its present situation, decided by candidates. Read-only.

:mod:`.reading` makes the situation of what can be seen from outside, :mod:`.deciding` asks candidates about it.
"""
