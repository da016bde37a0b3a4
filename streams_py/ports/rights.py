"""The error message for a missing right: the operation, the resource, and the command that grants it.

Brokers respond only with "authorization failed". The adapter that gets the response knows the request, so it creates
the message here, in the terms of Kafka's access control lists.
"""

from __future__ import annotations

from collections.abc import Collection

TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER = "topic", "group", "transactional id", "cluster"

_NAMES_MAX = 5


def missing_right(operation: str, resource: str, names: Collection[str] = (), *, prefix: str = "") -> str:
    """Return a message such as ``the user has no right READ on group orders: give it, kafka-acls ...``.

    Args:
        operation: The operation, such as READ.
        resource: One of the constants of this module.
        names: Names of the resources. ``cluster`` has none.
        prefix: If given, the command grants the right for all names that start with it, such as all internal topics of
            an application.
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
