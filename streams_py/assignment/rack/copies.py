"""Hosts of standbys during an exchange, and the rule that keeps copies of a task separate.

The separation rule is Kafka Streams' (KIP-708): after a move the hosts of a task, including the active one, must have
at least as many different (key, value) tags as before. All tags of a client count, whether configured or not.

Clients with the same rack and the same tags form a *class*. Costs and the separation rule depend only on classes. A tag
that only one client has is lost whenever a copy leaves that client, and gained whenever a copy arrives. So only the
number of such tags is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from streams_py.assignment.problem import Tags
from streams_py.assignment.rack.cost import Signatures


class Copies:
    """Hosts of every task, by client number. Changes are made with :meth:`move`.

    Attributes:
        home: rack of each client.
        class_of: class of each client.
        class_racks: rack of each class.
        class_tags: per class, the numbers of the tags that several clients have.
        class_own_tags: per class, the number of other tags.
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
        """``actives`` is -1 without an active host. Without ``tags`` every move is allowed."""
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
        """Return all clients with a copy: the active one, then the standbys in ascending order."""
        active = self.actives[task]
        return [*([active] if active >= 0 else []), *sorted(self.hosts[task])]

    def holds(self, client: int, task: int) -> bool:
        """Whether the client has the task in any role."""
        return client in self.hosts[task] or self.actives[task] == client

    def keeps_apart(self, task: int, source: int, target: int) -> bool:
        """Whether a copy may move from a client of class ``source`` to one of class ``target``."""
        if not self.has_tags:
            return True
        counts = self._tag_counts[task]
        leaving, coming = self.class_tags[source], self.class_tags[target]
        lost = sum(counts[tag] == 1 for tag in leaving) + self.class_own_tags[source]
        if not lost:
            return True
        # A tag of both classes is neither lost nor gained. It was counted as lost, so it is counted as gained, too.
        gained = sum(counts.get(tag, 0) == (tag in leaving) for tag in coming)
        return gained + self.class_own_tags[target] >= lost

    def move(self, task: int, source: int, target: int) -> None:
        """Move a standby from one client to another that does not have the task."""
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
        """Return the number of partitions that standbys read from other racks."""
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
    """Return, per client, the numbers of its tags that others have, and the count of the rest."""
    carriers = Counter(tag for of_client in tags for tag in of_client)
    numbers = {tag: number for number, tag in enumerate(sorted(tag for tag, count in carriers.items() if count > 1))}
    shared = [tuple(sorted(numbers[tag] for tag in of_client if tag in numbers)) for of_client in tags]
    return shared, [len(of_client) - len(found) for of_client, found in zip(tags, shared)]
