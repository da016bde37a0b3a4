"""The sentence about a right that is missing: which one, on what, and the command that gives it.

Brokers answer "authorization failed" and leave the rest to the reader. What was asked for is known where the answer
arrives, so each adapter says it here, in the words of Kafka's access control lists.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["CLUSTER", "GROUP", "TOPIC", "TRANSACTIONAL_ID", "missing_right"]

TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER = "topic", "group", "transactional id", "cluster"

_NAMES_MAX = 5


def missing_right(operation: str, resource: str, names: Collection[str] = (), *, prefix: str = "") -> str:
    """``the user has no right READ on group orders: give it with kafka-acls ...``

    ``resource`` is one of the constants above; ``cluster`` has no name. ``prefix`` says that the right is wanted for
    everything that begins so: one line for all internal topics of an application.
    """
    shown = sorted(names)[:_NAMES_MAX]
    if prefix and not shown:
        what = f"{resource}s that begin with {prefix}"
    else:
        what = " ".join(filter(None, [resource, ", ".join(shown)])) + (", ..." if len(names) > len(shown) else "")
    option = f"--{resource.replace(' ', '-')}"
    if prefix:
        where = f"{option} {prefix} --resource-pattern-type prefixed"
    else:
        where = " ".join(f"{option} {name}" for name in shown) or option
    return (
        f"the user has no right {operation} on {what}: give it, "
        f"kafka-acls --add --allow-principal User:NAME --operation {operation} {where}"
    )
