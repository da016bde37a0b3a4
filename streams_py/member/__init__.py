"""The member half of the assignment protocol, without I/O. Entry point: :class:`Member`."""

from streams_py.member.member import Member
from streams_py.member.settings import MemberSettings
from streams_py.member.tasks import HostView, Tasks
from streams_py.member.versions import RebalanceProtocol

__all__ = ["HostView", "Member", "MemberSettings", "RebalanceProtocol", "Tasks"]
