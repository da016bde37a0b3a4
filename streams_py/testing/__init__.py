"""The test kit: test your topologies without a broker, and your application on one.

* :class:`TopologyTestDriver` - a whole topology in this process, with mock time;
* :mod:`streams_py.testing.broker` - a broker for tests: embedded, Apache Kafka on the JVM, in Docker, or yours;
* :mod:`streams_py.testing.pytest_plugin` - fixtures for it: ``kafka_broker``, ``kafka_cluster``;
* :mod:`streams_py.testing.simulator` - whole groups of real leaders and members in virtual time, and
  :mod:`streams_py.testing.checkers` - what must never happen to them, and what they must come to;
* :mod:`streams_py.testing.fuzz` - damaged bytes for everything that reads bytes.

Loaded when first used, so that importing the kit costs nothing.
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
