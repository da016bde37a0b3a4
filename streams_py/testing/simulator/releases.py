"""Simulation of older and newer releases with the code of this one.

A release is identified by the newest protocol version that it supports. Its members announce that version. Its leader
reads subscriptions up to that version, treats members with a higher version as "future" members, and answers in the
version that the others use (KIP-268). All of that is in the first eight bytes, so an older or newer release is the
current code with other numbers there:

* An *older member* starts with its own version and announces it as its newest.
* An *older leader* sees :data:`FUTURE_VERSION` in place of any version that it would not know. Its assignments are
  encoded again in the version that it would have used.
* A *newer release* writes the current layout with the number :data:`FUTURE_VERSION`.

Releases up to version 4 support only the eager protocol, and their leaders do not know owned partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from streams_protocol import (
    EARLIEST_PROBEABLE_VERSION,
    LATEST_SUPPORTED_VERSION,
    UNKNOWN_VERSION,
    AssignmentInfo,
    DecodeError,
    EncodeError,
    SubscriptionInfo,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
)
from streams_py.member import Member, MemberSettings
from streams_py.member.versions import RebalanceProtocol, next_used_version
from streams_py.ports import MemberAssignment, MemberSubscription

_REMEMBERED = 1_024
"""Size of the caches of decoded and rewritten messages; a stable group repeats the same messages."""

FUTURE_VERSION: Final = LATEST_SUPPORTED_VERSION + 1
"""Version of a release that does not exist yet."""
EAGER_ONLY_UP_TO: Final = 4
"""Newest version of the releases before 2.4, which support only the eager protocol."""


def header(data: bytes | None) -> tuple[int, int] | None:
    """Return (version, latest supported) from the start of user data; None if it is too short."""
    if data is None or len(data) < 4:
        return None
    version = int.from_bytes(data[:4], "big", signed=True)
    if version < EARLIEST_PROBEABLE_VERSION:
        return version, UNKNOWN_VERSION
    return (version, int.from_bytes(data[4:8], "big", signed=True)) if len(data) >= 8 else None


def _with_header(data: bytes, version: int, latest: int) -> bytes:
    return version.to_bytes(4, "big", signed=True) + latest.to_bytes(4, "big", signed=True) + data[8:]


def _shown(data: bytes | None, newest: int) -> bytes | None:
    """Convert a subscription so that the current leader handles it as a leader of that release would."""
    found = header(data)
    if data is None or found is None:
        return data
    version, latest = found
    if newest < version <= LATEST_SUPPORTED_VERSION:
        return _with_header(data, FUTURE_VERSION, max(FUTURE_VERSION, latest))
    if newest >= version == FUTURE_VERSION:
        return _with_header(data, LATEST_SUPPORTED_VERSION, latest)
    return data


@lru_cache(_REMEMBERED)
def understood(data: bytes | None, newest: int) -> SubscriptionInfo | None:
    """Decode user data as a leader of that release does; None if it cannot read the data."""
    try:
        return decode_subscription_info(_shown(data, newest))
    except DecodeError:
        return None


@lru_cache(_REMEMBERED)
def sent_assignment(data: bytes) -> AssignmentInfo | None:
    """Decode an assignment of any release; None if it is unreadable."""
    found = header(data)
    if found is not None and found[0] == FUTURE_VERSION:
        data = _with_header(data, LATEST_SUPPORTED_VERSION, min(found[1], LATEST_SUPPORTED_VERSION))
    try:
        return decode_assignment_info(data)
    except DecodeError:
        return None


def spoken(data: bytes | None, newest: int) -> tuple[int, int] | None:
    """Return (version, latest supported) of a subscription; None if a leader of that release cannot read it."""
    return None if understood(data, newest) is None else header(data)


class _OlderMember(Member):
    """A member that starts with an old version."""

    def __init__(self, settings: MemberSettings, version: int) -> None:
        super().__init__(settings)
        self._used_version = version


class ReleaseMember:
    """The member of one thread, and the conversion of its messages for its release."""

    def __init__(self, settings: MemberSettings, newest: int) -> None:
        self.newest = newest
        self.member = _OlderMember(settings, newest) if newest < LATEST_SUPPORTED_VERSION else Member(settings)
        self._used = max(newest, LATEST_SUPPORTED_VERSION)  # counts for newer releases only

    @property
    def used_version(self) -> int:
        """Version of the next subscription."""
        return self._used if self.newest > LATEST_SUPPORTED_VERSION else self.member.used_version

    @property
    def cooperative(self) -> bool:
        """Whether it uses the cooperative protocol."""
        return self.newest > EAGER_ONLY_UP_TO and RebalanceProtocol.COOPERATIVE in self.member.protocols

    def outgoing(self, data: bytes) -> bytes:
        """Convert a subscription of the current code to the encoding of this release."""
        if self.newest == LATEST_SUPPORTED_VERSION:
            return data
        used = self.used_version
        if used < EARLIEST_PROBEABLE_VERSION:
            return data
        return _with_header(data, used, self.newest)

    def incoming(self, data: bytes) -> tuple[bytes, bool]:
        """Convert an assignment for this release to the current encoding.

        Returns (the assignment, whether a member of a newer release rejoins immediately).
        """
        found = header(data)
        if self.newest <= LATEST_SUPPORTED_VERSION or found is None or found[0] < EARLIEST_PROBEABLE_VERSION:
            return data, False
        version, common = found
        clipped = _with_header(data, min(version, LATEST_SUPPORTED_VERSION), min(common, LATEST_SUPPORTED_VERSION))
        changed = False
        info = sent_assignment(clipped)  # if it is unreadable or has an error code, its versions are ignored
        if info is not None and not info.error_code:
            self._used, changed = next_used_version(self._used, version, common)
        return clipped, changed


class ReleaseLeader:
    """Converts messages between the current leader and the leader of another release."""

    def __init__(self, newest: int) -> None:
        self._newest = newest

    def incoming(self, members: Mapping[str, MemberSubscription]) -> dict[str, MemberSubscription]:
        """Convert subscriptions so that the current leader sees what this release would see."""
        if self._newest == LATEST_SUPPORTED_VERSION:
            return dict(members)
        return {name: sent._replace(user_data=_shown(sent.user_data, self._newest)) for name, sent in members.items()}

    def outgoing(
        self, assignments: Mapping[str, MemberAssignment], members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """Convert assignments of the current leader to the encoding of this release."""
        if self._newest == LATEST_SUPPORTED_VERSION:
            return dict(assignments)
        heard = [found for sent in members.values() if (found := spoken(sent.user_data, self._newest)) is not None]
        version = min([self._newest, *(version for version, _ in heard)])
        common = min([self._newest, *(latest for _, latest in heard)])
        return {
            name: sent._replace(user_data=_rewritten(sent.user_data, self._newest, version, common))
            for name, sent in assignments.items()
        }


@lru_cache(_REMEMBERED)
def _rewritten(data: bytes, newest: int, version: int, common: int) -> bytes:
    """Encode an assignment as a leader of the release ``newest`` does, with these versions."""
    info = sent_assignment(data)
    if info is None:
        return data
    if info.error_code:
        version = common = newest
    if newest > LATEST_SUPPORTED_VERSION:
        return _with_header(data, version, common) if version >= EARLIEST_PROBEABLE_VERSION else data
    common = common if version >= EARLIEST_PROBEABLE_VERSION else UNKNOWN_VERSION
    try:
        return encode_assignment_info(replace(info, version=version, commonly_supported_version=common))
    except EncodeError:
        return data
