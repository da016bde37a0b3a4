"""Which application an internal topic belongs to, as far as its name and the groups of the cluster tell.

The name of an internal topic is ``<application.id>-<store or operator>-<kind>``. Both parts may contain hyphens, so
``app-two-x-changelog`` is the store ``two-x`` of ``app`` or the store ``x`` of ``app-two``. A group decides it while
the group exists; a broker forgets the group of a stopped application after ``offsets.retention.minutes``. Generated
names decide it, too: they start with the kind of their operator and end with a counter. The rest is uncertain. No
command may delete an uncertain topic as the application's own without asking.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from streams_py.topology.declare.names import internal_topics

_GENERATED: Final = re.compile(r"(?:KSTREAM|KTABLE|COGROUPKSTREAM)-[A-Z-]+-\d{10}(?:-[a-z-]+)?")


class Owner(Enum):
    """Whether a topic belongs to the application."""

    APPLICATION = "application"
    OTHER = "other"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True, slots=True)
class OwnerOfTopic:
    """The owner of one topic and the reason, which completes the sentence "the topic is listed because ..."."""

    owner: Owner
    why: str
    other: str = ""
    """The application.id of the other application; empty if it is unknown."""


def owners_of(
    application_id: str, topics: Iterable[str], *, groups: Collection[str] = (), own: Collection[str] = ()
) -> dict[str, OwnerOfTopic]:
    """Decide about each topic whose name could be an internal topic of ``application_id``.

    Args:
        application_id: The application in question.
        topics: All topics of the cluster; other names are left out of the result.
        groups: All consumer groups of the cluster.
        own: Topics known to belong to the application, for example from its topology.
    """
    mine = _pattern(application_id)
    others = {
        group: _pattern(group)
        for group in groups
        if group.startswith(f"{application_id}-") or application_id.startswith(f"{group}-")
    }
    named = OwnerOfTopic(Owner.APPLICATION, f"it is a known topic of {application_id}")
    return {
        topic: named if topic in own else _by_name(application_id, topic, others)
        for topic in topics
        if mine.fullmatch(topic)
    }


def _by_name(application_id: str, topic: str, groups: Mapping[str, re.Pattern[str]]) -> OwnerOfTopic:
    short = topic.removeprefix(f"{application_id}-")
    if _GENERATED.fullmatch(short):
        return OwnerOfTopic(Owner.APPLICATION, f"its generated name follows {application_id}")
    others = [group for group, pattern in groups.items() if pattern.fullmatch(topic)]
    longer = max((group for group in others if group.startswith(f"{application_id}-")), key=len, default="")
    if longer:
        return OwnerOfTopic(Owner.OTHER, f"it belongs to {longer}", longer)
    splits = [place.start() for place in re.finditer("-", short)]
    for place in splits:
        if _GENERATED.fullmatch(short[place + 1 :]):
            other = f"{application_id}-{short[:place]}"
            return OwnerOfTopic(Owner.OTHER, f"it belongs to {other}, which its generated name follows", other)
    possible = [f"{application_id}-{short[:place]}" for place in splits]
    possible = [other for other in possible if _pattern(other).fullmatch(topic)]
    shorter = sorted(others, key=len)
    if not possible and not shorter:
        return OwnerOfTopic(Owner.APPLICATION, "no other application.id fits its name")
    return OwnerOfTopic(
        Owner.UNCERTAIN, f"its name also fits an application.id of {', '.join((*shorter, *possible)[:3])}"
    )


def _pattern(application_id: str) -> re.Pattern[str]:
    """The application's internal topics, without Kafka's own."""
    return re.compile(rf"(?={re.escape(application_id)}-)(?:{internal_topics(application_id).pattern})")
