"""Lets candidates decide the present situation of a running group, Java or Python. Read-only.

:mod:`.reading` creates the situation from what is visible from outside. :mod:`.deciding` asks candidates about it.
"""
