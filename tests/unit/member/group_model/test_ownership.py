"""Partitions given up before a join or for an assignment, and the order of callbacks."""

from __future__ import annotations

from typing import Any

from streams_protocol.types import TopicPartition
from streams_py.member.group_model.ownership import Ownership, Partitions


def parts(*numbers: int) -> Partitions:
    return frozenset(TopicPartition("in", number) for number in numbers)


class Heard:
    """Records every callback, with partitions as numbers."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_lost(self, partitions: Partitions) -> None:
        self._note("lost", partitions)

    def on_revoked(self, partitions: Partitions) -> None:
        self._note("revoked", partitions)

    def on_owned(self, before: Partitions, now: Partitions) -> None:
        self._note("owned", before, now)

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        self._note("assignment", frozenset(partitions))

    def on_assigned(self, added: Partitions) -> None:
        self._note("assigned", added)

    def _note(self, name: str, *partitions: Partitions) -> None:
        self.calls.append((name, *([tp.partition for tp in sorted(of)] for of in partitions)))


def owner_of(*numbers: int) -> tuple[Ownership, Heard]:
    heard = Heard()
    ownership = Ownership(heard)
    ownership.take(tuple(sorted(parts(*numbers))), b"")
    heard.calls.clear()
    return ownership, heard


def test_cooperative_member_keeps_everything_when_it_joins() -> None:
    ownership, heard = owner_of(0, 1)
    ownership.prepare_to_join(is_member=True, cooperative=True)
    assert ownership.owned == parts(0, 1)
    assert heard.calls == []


def test_eager_member_revokes_everything_before_it_joins() -> None:
    ownership, heard = owner_of(0, 1)
    ownership.prepare_to_join(is_member=True, cooperative=False)
    assert ownership.owned == parts()
    assert heard.calls == [("revoked", [0, 1]), ("owned", [0, 1], [])]


def test_partitions_are_lost_and_not_revoked_when_membership_is() -> None:
    for cooperative in (True, False):
        ownership, heard = owner_of(0)
        ownership.prepare_to_join(is_member=False, cooperative=cooperative)
        assert heard.calls == [("lost", [0]), ("owned", [0], [])]


def test_nobody_hears_of_a_loss_when_there_was_nothing() -> None:
    ownership, heard = owner_of()
    ownership.prepare_to_join(is_member=False, cooperative=True)
    assert [name for name, *_ in heard.calls] == ["owned"]


def test_what_an_assignment_takes_away_is_revoked_before_it_is_read() -> None:
    ownership, heard = owner_of(0, 1)
    assert ownership.taken_away_by(parts(1, 2)) == parts(0)
    ownership.take(tuple(sorted(parts(1, 2))), b"")
    assert heard.calls == [
        ("revoked", [0]),
        ("owned", [0, 1], [1]),
        ("assignment", [1, 2]),
        ("owned", [1], [1, 2]),
        ("assigned", [2]),
    ]


def test_nothing_is_revoked_when_an_assignment_takes_nothing_away() -> None:
    ownership, heard = owner_of(0)
    assert not ownership.taken_away_by(parts(0, 1))
    ownership.take(tuple(sorted(parts(0, 1))), b"")
    assert [name for name, *_ in heard.calls] == ["assignment", "owned", "assigned"]
