"""The test kit: test topologies without a broker, and applications on one.

* :class:`TopologyTestDriver`: runs a whole topology in this process, with mock time.
* :mod:`streams_py.testing.broker`: brokers for tests. Embedded, Apache Kafka on the JVM or in Docker, or your own.
* :mod:`streams_py.testing.pytest_plugin`: the fixtures ``kafka_broker`` and ``kafka_cluster`` for these brokers.
* :mod:`streams_py.testing.simulator`: whole groups of real leaders and members, in virtual time.
* :mod:`streams_py.testing.checkers`: the safety and liveness properties that the simulator checks.

The modules are loaded on first use, so importing the kit costs nothing.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

_HOME = {
    "InputTopic": "streams_py.testing.driver",
    "OutputTopic": "streams_py.testing.driver",
    "TopologyTestDriver": "streams_py.testing.driver",
}

if TYPE_CHECKING:
    from streams_py.testing.driver import InputTopic, OutputTopic, TopologyTestDriver

__all__ = ["InputTopic", "OutputTopic", "TopologyTestDriver"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(_HOME[name]), name)
