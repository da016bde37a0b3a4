"""Brokers for tests: one interface, four back ends.

==================  ===========================================  ==========================================
back end            description                                  requires
==================  ===========================================  ==========================================
`EmbeddedBroker`    librdkafka's mock cluster                    nothing
`JvmBroker`         Apache Kafka's jars on this machine's JVM    Java 17, and Maven once
`DockerBroker`      Apache Kafka in containers                   Docker, testcontainers
`AddressBroker`     an existing cluster                          its address in ``STREAMS_PY_BOOTSTRAP``
==================  ===========================================  ==========================================

:class:`SecuredBroker` runs on the JVM with TLS, logins and access control lists. :func:`find_broker` chooses the best
real broker (any back end except the embedded one). :func:`why_no_broker` returns the reason if no real broker is
available. With pytest use the fixtures of :mod:`streams_py.testing.pytest_plugin`; in a terminal use
``python -m streams_py.testing.broker start``.
"""

from streams_py.testing.broker.choose import AddressBroker, find_broker, why_no_broker
from streams_py.testing.broker.container import DockerBroker
from streams_py.testing.broker.embedded import EmbeddedBroker
from streams_py.testing.broker.interface import KAFKA_VERSION, Broker, BrokerCapabilities, NoBrokerError
from streams_py.testing.broker.jvm import JvmBroker
from streams_py.testing.broker.secured import Right, SecuredBroker

__all__ = [
    "KAFKA_VERSION",
    "AddressBroker",
    "Broker",
    "BrokerCapabilities",
    "DockerBroker",
    "EmbeddedBroker",
    "JvmBroker",
    "NoBrokerError",
    "Right",
    "SecuredBroker",
    "find_broker",
    "why_no_broker",
]
