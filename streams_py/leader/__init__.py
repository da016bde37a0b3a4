"""The group leader's assign step, without I/O: :class:`GroupLeader` and :func:`run_assign`."""

from streams_py.leader.drive import run_assign
from streams_py.leader.leader import GroupLeader
from streams_py.leader.settings import LeaderSettings

__all__ = ["GroupLeader", "LeaderSettings", "run_assign"]
