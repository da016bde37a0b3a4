"""Which broker can the tests of this machine have?

The best real one: an address in ``STREAMS_PY_BOOTSTRAP``, else Kafka's jars on a JVM (quickest), else Docker.
``STREAMS_PY_BROKER`` set to ``jvm``, ``docker`` or ``none`` allows only that kind; ``STREAMS_PY_KAFKA_VERSION`` names
another release of Apache Kafka, ``STREAMS_PY_KAFKA_IMAGE`` an image for Docker.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from streams_py.testing.broker.address import AddressBroker
from streams_py.testing.broker.container import DockerBroker, why_no_docker
from streams_py.testing.broker.interface import Broker, NoBrokerError
from streams_py.testing.broker.jars import why_no_jvm
from streams_py.testing.broker.jvm import JvmBroker

__all__ = ["find_broker", "why_no_broker"]

_KINDS = ("jvm", "docker", "none")


def why_no_broker(*, nodes: int = 1) -> str | None:
    """Why :func:`find_broker` has nothing to offer, e.g. ``no Java and no Docker``; None when it has.

    Starts nothing, but the first call may take a while to fetch Kafka's jars, or to pull its image.
    """
    try:
        _choose(nodes)
    except NoBrokerError as error:
        return str(error)
    return None


def find_broker(*, nodes: int = 1, on_jvm: Callable[[], Broker] | None = None) -> Broker:
    """Start (or connect to) the best real broker; NoBrokerError says why there is none. Close it when done.
    ``on_jvm`` makes another one than JvmBroker where that would be taken."""
    return _choose(nodes, on_jvm)()


def _choose(nodes: int, on_jvm: Callable[[], Broker] | None = None) -> Callable[[], Broker]:
    only = os.environ.get("STREAMS_PY_BROKER", "")
    if only and only not in _KINDS:
        raise NoBrokerError(f"STREAMS_PY_BROKER={only} is not one of {', '.join(_KINDS)}")
    if only == "none":
        raise NoBrokerError("STREAMS_PY_BROKER=none")
    address = os.environ.get("STREAMS_PY_BOOTSTRAP")
    # An address is taken for single-broker tests only: a test for three nodes wants to kill some of them.
    if address and nodes == 1 and not only:
        return lambda: AddressBroker(address)
    why_not = []
    if only in ("", "jvm"):
        reason = why_no_jvm()
        if reason is None:
            return on_jvm or (lambda: JvmBroker(nodes=nodes))
        why_not.append(reason)
    if only in ("", "docker"):
        reason = why_no_docker()
        if reason is None:
            return lambda: DockerBroker(nodes=nodes)
        why_not.append(reason)
    raise NoBrokerError(" and ".join(why_not))
