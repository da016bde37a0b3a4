"""Which version a member speaks, and how it moves.

A member starts with the newest version, or with an old one while ``upgrade.from`` says that older members are still
about. Each assignment tells the version it is written in and the newest that *everybody* supports; from the two a
member finds out that it must step down (an older leader treated it as a "future" member) or may step up (everybody is
upgraded). Kafka Streams' version probing (KIP-268).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from streams_protocol import EARLIEST_PROBEABLE_VERSION, LATEST_SUPPORTED_VERSION
from streams_py.errors import ConfigError, TaskAssignmentError

__all__ = ["RebalanceProtocol", "check_received_version", "next_used_version", "start_protocols", "start_version"]


class RebalanceProtocol(Enum):
    """How partitions change hands: all given up before joining, or only the lost ones after it (KIP-429)."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


_VERSION_1: Final = frozenset({"0.10.0"})
_VERSION_2: Final = frozenset({"0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"})
_EAGER_ONLY: Final = frozenset({"2.0", "2.1", "2.2", "2.3"})  # from 2.4 on leaders know owned partitions
_NEWEST_RELEASE_LISTED: Final = (4, 99)


def start_version(upgrade_from: str | None) -> int:
    """Version of the first subscription. ConfigError for a release that does not exist."""
    _check_release(upgrade_from)
    if upgrade_from in _VERSION_1:
        return 1
    return 2 if upgrade_from in _VERSION_2 else LATEST_SUPPORTED_VERSION


def start_protocols(upgrade_from: str | None) -> tuple[RebalanceProtocol, ...]:
    """Rebalance protocols this member lists, least preferred first; it uses the last one that all members list."""
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
            f"upgrade.from = {upgrade_from!r} is no release to upgrade from; use one like '2.3', or leave it out",
            key="upgrade.from",
        )


def check_received_version(used: int, received: int, commonly_supported: int) -> None:
    """TaskAssignmentError for an assignment that no correct leader sends to this member."""
    if received > used:
        raise TaskAssignmentError(
            f"this member sent a subscription of version {used} and received an assignment of version {received}; "
            "the leader of the group is faulty, check which program and version it runs"
        )
    if commonly_supported > LATEST_SUPPORTED_VERSION:
        raise TaskAssignmentError(
            f"the leader says that everybody supports version {commonly_supported}, but this member supports at most "
            f"{LATEST_SUPPORTED_VERSION}; check which program and version the leader runs"
        )


def next_used_version(used: int, received: int, commonly_supported: int) -> tuple[int, bool]:
    """(version of the next subscription, whether to rejoin for it at once).

    Stepping down goes to the commonly supported version, which may be the one already used: then only the rejoin
    matters, while somebody else steps up.
    """
    if received < EARLIEST_PROBEABLE_VERSION:
        return used, False
    if commonly_supported > used or received < used:
        return commonly_supported, True
    return used, False
