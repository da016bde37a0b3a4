"""Standbys while they are being exchanged: who holds what, and which exchanges keep the copies of a task apart.

The rule for keeping apart is Kafka Streams' (KIP-708): the hosts of a task, active included, must carry at least as
many different (key, value) tags after a move as before. All tags of a client count, whether configured or not.

Clients with the same rack and the same tags form a *class*; costs and rule only ask for classes. A tag that only one
client carries is lost whenever a copy leaves that client and gained whenever one arrives, so those are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from streams_py.assignment.problem import Tags
from streams_py.assignment.rack.cost import Signatures

__all__ = ["Copies"]


class Copies:
    """Hosts of every task, by client number; changes are made with :meth:`move`.

    ``home[c]``: rack of client c. ``class_of[c]``: its class. By class: ``class_racks``; ``class_tags``, the numbers of
    tags that several clients carry; ``class_own_tags``, how many more there are.
    """

    __slots__ = (
        "_tag_counts",
        "actives",
        "class_of",
        "class_own_tags",
        "class_racks",
        "class_tags",
        "has_tags",
        "home",
        "hosts",
        "on",
        "racks",
        "signatures",
    )

    def __init__(
        self,
        signatures: Signatures,
        actives: Sequence[int],
        standbys: Sequence[Collection[int]],
        home: Sequence[int],
        racks: int,
        tags: Sequence[Tags] | None,
    ) -> None:
        """``actives``: -1 for none. Without ``tags`` every move is allowed."""
        self.signatures = signatures
        self.actives = actives
        self.hosts = [set(hosts) for hosts in standbys]
        self.home = home
        self.racks = racks
        self.has_tags = tags is not None
        self.on: list[set[int]] = [set() for _ in home]
        for task, hosts in enumerate(self.hosts):
            for client in hosts:
                self.on[client].add(task)
        shared, own = _number_tags(tags) if tags is not None else ([()] * len(home), [0] * len(home))
        classes: dict[tuple[int, tuple[int, ...], int], int] = {}
        self.class_of = [classes.setdefault(key, len(classes)) for key in zip(home, shared, own)]
        self.class_racks = [rack for rack, _, _ in classes]
        self.class_tags = [numbers for _, numbers, _ in classes]
        self.class_own_tags = [count for _, _, count in classes]
        self._tag_counts = [self._count_tags(task) for task in range(len(self.hosts))] if tags is not None else []

    def all_hosts(self, task: int) -> list[int]:
        """Everybody with a copy: the active, then the standbys in ascending order."""
        active = self.actives[task]
        return [*([active] if active >= 0 else []), *sorted(self.hosts[task])]

    def holds(self, client: int, task: int) -> bool:
        """Whether the client has the task in any role."""
        return client in self.hosts[task] or self.actives[task] == client

    def keeps_apart(self, task: int, source: int, target: int) -> bool:
        """Whether the rule allows a copy on a client of class ``source`` to move to one of class ``target``."""
        if not self.has_tags:
            return True
        counts = self._tag_counts[task]
        leaving, coming = self.class_tags[source], self.class_tags[target]
        lost = sum(counts[tag] == 1 for tag in leaving) + self.class_own_tags[source]
        if not lost:
            return True
        # A tag that leaves and comes at once is neither: counted as gained because it was counted as lost.
        gained = sum(counts.get(tag, 0) == (tag in leaving) for tag in coming)
        return gained + self.class_own_tags[target] >= lost

    def move(self, task: int, source: int, target: int) -> None:
        """Move a standby from one client to another that does not hold the task."""
        self.hosts[task].remove(source)
        self.hosts[task].add(target)
        self.on[source].remove(task)
        self.on[target].add(task)
        if self.has_tags:
            counts = self._tag_counts[task]
            for tag in self.class_tags[self.class_of[source]]:
                counts[tag] -= 1
            for tag in self.class_tags[self.class_of[target]]:
                counts[tag] = counts.get(tag, 0) + 1

    def foreign_total(self) -> int:
        """Partitions that standbys read from other racks."""
        signatures, home = self.signatures, self.home
        return sum(
            signatures.foreign(kind, home[client]) for kind, hosts in zip(signatures.of, self.hosts) for client in hosts
        )

    def _count_tags(self, task: int) -> dict[int, int]:
        counts: dict[int, int] = {}
        for client in self.all_hosts(task):
            for tag in self.class_tags[self.class_of[client]]:
                counts[tag] = counts.get(tag, 0) + 1
        return counts


def _number_tags(tags: Sequence[Tags]) -> tuple[list[tuple[int, ...]], list[int]]:
    """By client: the numbers of its tags that others carry too, how many others it has."""
    carriers = Counter(tag for of_client in tags for tag in of_client)
    numbers = {tag: number for number, tag in enumerate(sorted(tag for tag, count in carriers.items() if count > 1))}
    shared = [tuple(sorted(numbers[tag] for tag in of_client if tag in numbers)) for of_client in tags]
    return shared, [len(of_client) - len(found) for of_client, found in zip(tags, shared)]
