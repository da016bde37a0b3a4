"""Older and newer releases, played by the code of this one.

A release is known by the newest protocol version it speaks. Its members announce that version; its leader understands
subscriptions up to it, takes members above it for "future" ones, and answers in the version the others speak (KIP-268).
All of that happens in the first eight bytes, so an older or newer release is today's code with other numbers there:

* an *older member* starts at its own version and announces it as its newest;
* an *older leader* is shown version 12 wherever a member speaks a version that it would not know, and what it sends is
  written again in the version it would have used;
* a *newer release* (12) writes today's layout under the number 12.

Releases up to version 4 know only the eager protocol, and their leaders know no owned partitions.
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

__all__ = [
    "EAGER_ONLY_UP_TO",
    "FUTURE_VERSION",
    "ReleaseLeader",
    "ReleaseMember",
    "header",
    "sent_assignment",
    "spoken",
    "understood",
]

_REMEMBERED = 1_024
"""Decoded and rewritten messages: a group at rest says the same again and again."""

FUTURE_VERSION: Final = 12
EAGER_ONLY_UP_TO: Final = 4
"""Newest version of the releases before 2.4, which know only the eager protocol."""


def header(data: bytes | None) -> tuple[int, int] | None:
    """(version, latest supported) at the start of user data; None when there are no such bytes."""
    if data is None or len(data) < 4:
        return None
    version = int.from_bytes(data[:4], "big", signed=True)
    if version < EARLIEST_PROBEABLE_VERSION:
        return version, UNKNOWN_VERSION
    return (version, int.from_bytes(data[4:8], "big", signed=True)) if len(data) >= 8 else None


def _with_header(data: bytes, version: int, latest: int) -> bytes:
    return version.to_bytes(4, "big", signed=True) + latest.to_bytes(4, "big", signed=True) + data[8:]


def _shown(data: bytes | None, newest: int) -> bytes | None:
    """A subscription as today's leader must see it to take it as a leader of that release would."""
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
    """What a leader of that release reads in user data; None when it is garbage to it."""
    try:
        return decode_subscription_info(_shown(data, newest))
    except DecodeError:
        return None


@lru_cache(_REMEMBERED)
def sent_assignment(data: bytes) -> AssignmentInfo | None:
    """An assignment of any release; None when nobody can read it."""
    found = header(data)
    if found is not None and found[0] == FUTURE_VERSION:
        data = _with_header(data, LATEST_SUPPORTED_VERSION, min(found[1], LATEST_SUPPORTED_VERSION))
    try:
        return decode_assignment_info(data)
    except DecodeError:
        return None


def spoken(data: bytes | None, newest: int) -> tuple[int, int] | None:
    """(version, latest supported) of a subscription that a leader of that release understands; None for garbage."""
    return None if understood(data, newest) is None else header(data)


class _OlderMember(Member):
    """A member that starts at an old version."""

    def __init__(self, settings: MemberSettings, version: int) -> None:
        super().__init__(settings)
        self._used_version = version


class ReleaseMember:
    """The member of one thread, and the bytes it sends and receives in its release."""

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
        """Whether it changes hands of partitions the cooperative way."""
        return self.newest > EAGER_ONLY_UP_TO and RebalanceProtocol.COOPERATIVE in self.member.protocols

    def outgoing(self, data: bytes) -> bytes:
        """A subscription of today's code as this release writes it."""
        if self.newest == LATEST_SUPPORTED_VERSION:
            return data
        used = self.used_version
        if used < EARLIEST_PROBEABLE_VERSION:
            return data
        return _with_header(data, used, self.newest)

    def incoming(self, data: bytes) -> tuple[bytes, bool]:
        """(an assignment for this release as today's code reads it, whether a newer release rejoins at once)."""
        found = header(data)
        if self.newest <= LATEST_SUPPORTED_VERSION or found is None or found[0] < EARLIEST_PROBEABLE_VERSION:
            return data, False
        version, common = found
        clipped = _with_header(data, min(version, LATEST_SUPPORTED_VERSION), min(common, LATEST_SUPPORTED_VERSION))
        changed = False
        info = sent_assignment(clipped)  # with an error code in it, or unreadable, its versions are not looked at
        if info is not None and not info.error_code:
            self._used, changed = next_used_version(self._used, version, common)
        return clipped, changed


class ReleaseLeader:
    """What a leader of one release reads and writes, around today's leader."""

    def __init__(self, newest: int) -> None:
        self._newest = newest

    def incoming(self, members: Mapping[str, MemberSubscription]) -> dict[str, MemberSubscription]:
        """Subscriptions as today's leader must be shown them to see what this release would."""
        if self._newest == LATEST_SUPPORTED_VERSION:
            return dict(members)
        return {name: sent._replace(user_data=_shown(sent.user_data, self._newest)) for name, sent in members.items()}

    def outgoing(
        self, assignments: Mapping[str, MemberAssignment], members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        """Today's assignments as this release would have written them."""
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
    """An assignment as a leader of the release ``newest`` writes it, in these versions."""
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
