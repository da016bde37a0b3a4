"""The protocol version that a member uses, and how the version changes.

A member starts with the newest version. It starts with an old version while ``upgrade.from`` says that the group still
has older members. Each assignment carries two versions: the one that it is written in, and the newest version that
*all* members support. From these two a member learns that it must step down (an older leader treated it as a "future"
member) or may step up (all members are upgraded). Kafka Streams' version probing (KIP-268).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from streams_protocol import EARLIEST_PROBEABLE_VERSION, LATEST_SUPPORTED_VERSION
from streams_py.errors import ConfigError, TaskAssignmentError


class RebalanceProtocol(Enum):
    """How partitions change owners (KIP-429).

    EAGER: a member gives up all partitions before it joins. COOPERATIVE: it gives up only the partitions that it loses,
    after it has joined.
    """

    EAGER = "eager"
    COOPERATIVE = "cooperative"


_VERSION_1: Final = frozenset({"0.10.0"})
_VERSION_2: Final = frozenset({"0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"})
_EAGER_ONLY: Final = frozenset({"2.0", "2.1", "2.2", "2.3"})  # leaders since 2.4 know owned partitions
_NEWEST_RELEASE_LISTED: Final = (4, 99)


def start_version(upgrade_from: str | None) -> int:
    """Return the version of the first subscription. Raises ConfigError for an unknown release."""
    _check_release(upgrade_from)
    if upgrade_from in _VERSION_1:
        return 1
    return 2 if upgrade_from in _VERSION_2 else LATEST_SUPPORTED_VERSION


def start_protocols(upgrade_from: str | None) -> tuple[RebalanceProtocol, ...]:
    """Return the rebalance protocols that this member lists, least preferred first.

    The group uses the last protocol that all members list.
    """
    _check_release(upgrade_from)
    if upgrade_from in _VERSION_1 | _VERSION_2 | _EAGER_ONLY:
        return (RebalanceProtocol.EAGER,)
    return (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)


def _check_release(upgrade_from: str | None) -> None:
    if upgrade_from is None or upgrade_from in _VERSION_1 | _VERSION_2:
        return
    major, dot, minor = upgrade_from.partition(".")
    if not (dot and major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()) or not (
        (2, 0) <= (int(major), int(minor)) <= _NEWEST_RELEASE_LISTED
    ):
        raise ConfigError(
            f"upgrade.from = {upgrade_from!r} is not a supported release; use a value such as '2.3', or remove the "
            "setting",
            key="upgrade.from",
        )


def check_received_version(used: int, received: int, commonly_supported: int) -> None:
    """Raise TaskAssignmentError for an assignment that no correct leader sends to this member."""
    if received > used:
        raise TaskAssignmentError(
            f"this member sent a subscription of version {used} and received an assignment of version {received}; "
            "the leader of the group is faulty, check which program and version it runs"
        )
    if commonly_supported > LATEST_SUPPORTED_VERSION:
        raise TaskAssignmentError(
            f"the leader says that all members support version {commonly_supported}, but this member supports at most "
            f"{LATEST_SUPPORTED_VERSION}; check which program and version the leader runs"
        )


def next_used_version(used: int, received: int, commonly_supported: int) -> tuple[int, bool]:
    """Return (version of the next subscription, whether to rejoin immediately because of it).

    A member steps down to the commonly supported version. This may be the version that it already uses: then the rejoin
    itself matters, while another member steps up.
    """
    if received < EARLIEST_PROBEABLE_VERSION:
        return used, False
    if commonly_supported > used or received < used:
        return commonly_supported, True
    return used, False
