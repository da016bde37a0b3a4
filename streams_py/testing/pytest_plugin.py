"""pytest plugin: real brokers as session fixtures, and an honest count of the tests that had one.

* ``kafka_broker``: one Apache Kafka node, started when the first test asks for it, shared by the session (of a
  parallel run: by the worker);
* ``kafka_cluster``: three nodes; a test that kills some must start them again;
* ``secured_kafka_broker``: one node with TLS, logins and access control lists (``SecuredBroker``); on a JVM only;
* tests that take one of them, or are marked ``broker``, are deselected where no broker can be had, and the last lines
  of the run say so by number: ``0 of 12 broker tests ran: no Java and no Docker``. A test that did not run never
  looks like one that passed.
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
    """What became of the tests marked ``broker`` in this run."""

    def __init__(self) -> None:
        self.selected: set[str] = set()
        self.ran: set[str] = set()
        self.why_none: str | None = None
        self.labels: set[str] = set()

    def to_controller(self) -> dict[str, Any]:
        """Plain values: in a parallel run (pytest-xdist) the workers count, and the controller has the last word."""
        return {
            "selected": sorted(self.selected),
            "ran": sorted(self.ran),
            "why_none": self.why_none,
            "labels": sorted(self.labels),
        }

    def add(self, other: dict[str, Any]) -> None:
        """What a worker counted."""
        self.selected |= set(other["selected"])
        self.ran |= set(other["ran"])
        self.labels |= set(other["labels"])
        self.why_none = self.why_none or other["why_none"]

    def summary(self) -> str | None:
        """The line for the end of the run; None when no such test was selected."""
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
    """Whoever takes a broker is a broker test, said or not."""
    if _FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.broker)


@pytest.hookimpl(trylast=True)  # after -m and -k: count only what was asked for
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
    """Three real Kafka nodes for the whole session, everything replicated three times, one may be down."""
    yield from _running(request, nodes=3)


@pytest.fixture(scope="session")
def secured_kafka_broker(request: pytest.FixtureRequest) -> Iterator[SecuredBroker]:
    """One real Kafka node for the whole session that asks for certificates, logins and rights."""
    from streams_py.testing import broker

    try:
        running = broker.SecuredBroker(plain_users={"plain-user": "plain-marker-5ecret"})
    except broker.NoBrokerError as error:
        pytest.skip(f"a secured broker runs on this machine's Java only: {str(error).splitlines()[0]}")
    request.config.stash[_STATE].labels.add(running.capabilities.label)
    yield running
    running.close()


def _running(request: pytest.FixtureRequest, *, nodes: int) -> Iterator[Broker]:
    from streams_py.testing import broker

    running = broker.find_broker(nodes=nodes, on_jvm=lambda: broker.JvmBroker(nodes=nodes, for_minutes=True))
    request.config.stash[_STATE].labels.add(running.capabilities.label)
    try:
        yield running
    finally:
        running.close()
