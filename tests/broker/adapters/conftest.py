"""Groups on a real broker, left at the end of each test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from streams_py.adapters.kafka_python.classic.membership import KafkaPythonMembership
from streams_py.errors import StreamsError
from tests.support.broker.groups import Group
from tests.support.waiting import until as wait_until


@pytest.fixture
def group(kafka_broker) -> Iterator[Group]:
    made = Group(kafka_broker, 6)
    yield made
    made.close()


@pytest.fixture
def cluster_group(kafka_cluster) -> Iterator[Group]:
    made = Group(kafka_cluster, 6)
    yield made
    made.close()


@pytest.fixture
def until() -> Callable[[Callable[[], object], str], None]:
    return wait_until


def find_problem(member: KafkaPythonMembership) -> StreamsError | None:
    try:
        member.check()
    except StreamsError as error:
        return error
    return None


@pytest.fixture
def problem_of() -> Callable[[KafkaPythonMembership], StreamsError | None]:
    """Return the error that ``check`` raises, or None."""
    return find_problem


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that is set at the end in any case, so that no thread waits forever."""
    event = threading.Event()
    yield event
    event.set()
