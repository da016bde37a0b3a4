"""Brokers for tests: one interface, four back ends.

==================  ===========================================  ==========================================
back end            what it is                                   needs
==================  ===========================================  ==========================================
`EmbeddedBroker`    librdkafka's mock cluster                    nothing
`JvmBroker`         Apache Kafka's jars on this machine's JVM    Java 17, and Maven once
`DockerBroker`      Apache Kafka in containers                   Docker, testcontainers
`AddressBroker`     a cluster that somebody else runs            its address in ``STREAMS_PY_BOOTSTRAP``
==================  ===========================================  ==========================================

:class:`SecuredBroker` is a JVM's with TLS, logins and access control lists. :func:`find_broker` takes the best real one
(everything but the embedded), :func:`why_no_broker` says in a sentence why there is none. With pytest use the fixtures
of :mod:`streams_py.testing.pytest_plugin`; in a terminal ``python -m streams_py.testing.broker start``.
"""

from streams_py.testing.broker.address import AddressBroker
from streams_py.testing.broker.choose import find_broker, why_no_broker
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
