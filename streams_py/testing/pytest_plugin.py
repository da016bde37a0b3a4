"""pytest plugin: real brokers as session fixtures, and a count of the broker tests that ran.

* ``kafka_broker``: one Apache Kafka node. It starts when the first test requests it, and is shared by the session (in
  a parallel run: by the worker).
* ``kafka_cluster``: three nodes. A test that stops nodes must start them again.
* ``secured_kafka_broker``: one node with TLS, logins and access control lists (``SecuredBroker``). JVM only.

Tests that use one of these fixtures, or are marked ``broker``, are deselected if no broker is available. The summary
at the end of the run then reports it, for example ``0 of 12 broker tests ran: no Java and no Docker``, so a test that
did not run never looks like a passed test.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # a run without broker tests must not pay for loading Kafka clients
    from streams_py.testing.broker import Broker, SecuredBroker

__all__ = ["kafka_broker", "kafka_cluster", "secured_kafka_broker"]

_FIXTURES = frozenset(__all__)


class _BrokerTests:
    """Counts the tests marked ``broker`` in this run."""

    def __init__(self) -> None:
        self.selected: set[str] = set()
        self.ran: set[str] = set()
        self.why_none: str | None = None
        self.labels: set[str] = set()

    def to_controller(self) -> dict[str, Any]:
        """Return plain values that a pytest-xdist worker can send to the controller, which prints the summary."""
        return {
            "selected": sorted(self.selected),
            "ran": sorted(self.ran),
            "why_none": self.why_none,
            "labels": sorted(self.labels),
        }

    def add(self, other: dict[str, Any]) -> None:
        """Add the counts of a worker."""
        self.selected |= set(other["selected"])
        self.ran |= set(other["ran"])
        self.labels |= set(other["labels"])
        self.why_none = self.why_none or other["why_none"]

    def summary(self) -> str | None:
        """Return the line for the end of the run; None if no broker test was selected."""
        if not self.selected:
            return None
        line = f"{len(self.ran)} of {len(self.selected)} broker tests ran"
        if self.why_none is not None:
            return f"{line}: {self.why_none}"
        return f"{line} on {', '.join(sorted(self.labels))}" if self.labels else line


_STATE = pytest.StashKey[_BrokerTests]()
_FROM_WORKER = "streams-py-broker-tests"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STATE] = _BrokerTests()
    config.addinivalue_line("markers", "broker: needs a real Apache Kafka broker (JVM, Docker or STREAMS_PY_BOOTSTRAP)")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test that uses a broker fixture as a broker test."""
    if _FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.broker)


@pytest.hookimpl(trylast=True)  # after -m and -k: count only selected tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    state = config.stash[_STATE]
    chosen = [item for item in items if item.get_closest_marker("broker") is not None]
    if not chosen:
        return
    state.selected = {item.nodeid for item in chosen}
    from streams_py.testing import broker

    state.why_none = broker.why_no_broker()
    if state.why_none is not None:
        items[:] = [item for item in items if item.nodeid not in state.selected]
        config.hook.pytest_deselected(items=chosen)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    state = item.config.stash[_STATE]
    if report.when == "call" and not report.skipped and item.nodeid in state.selected:
        state.ran.add(item.nodeid)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_FROM_WORKER] = session.config.stash[_STATE].to_controller()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    counted = getattr(node, "workeroutput", {}).get(_FROM_WORKER)
    if counted is not None:  # None: the worker died
        node.config.stash[_STATE].add(counted)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    line = config.stash[_STATE].summary()
    if line is not None:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One real Kafka node for the whole session."""
    yield from _running(request, nodes=1)


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Three real Kafka nodes for the whole session. Topics have three replicas; one node may be down."""
    yield from _running(request, nodes=3)


@pytest.fixture(scope="session")
def secured_kafka_broker(request: pytest.FixtureRequest) -> Iterator[SecuredBroker]:
    """One real Kafka node for the whole session, with TLS, logins and access control lists."""
    from streams_py.testing import broker

    try:
        running = broker.SecuredBroker(plain_users={"plain-user": "plain-marker-5ecret"})
    except broker.NoBrokerError as error:
        pytest.skip(f"a secured broker needs Java on this machine: {str(error).splitlines()[0]}")
    request.config.stash[_STATE].labels.add(running.capabilities.label)
    yield running
    running.close()


def _running(request: pytest.FixtureRequest, *, nodes: int) -> Iterator[Broker]:
    from streams_py.testing import broker

    running = broker.find_broker(nodes=nodes, on_jvm=lambda: broker.JvmBroker(nodes=nodes, short_lived=True))
    request.config.stash[_STATE].labels.add(running.capabilities.label)
    try:
        yield running
    finally:
        running.close()
