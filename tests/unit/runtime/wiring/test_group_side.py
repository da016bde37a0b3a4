"""Messages and questions of a transport reach the parts of its stream thread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from streams_py.errors import StreamsError
from streams_py.member.tasks import HostView
from streams_py.runtime.group.inbox import Inbox
from streams_py.runtime.wiring.group_side import ThreadReport, ThreadSignals


@pytest.fixture
def thread() -> Any:
    return SimpleNamespace(inbox=Inbox[Any](), report=Mock(), owner=Mock())


def test_signals_reach_the_producer_the_hosts_and_the_thread(thread: Any) -> None:
    producer, hosts, view, error = Mock(), Mock(), HostView(), StreamsError("an assignor failed")
    signals = ThreadSignals(thread, producer, hosts)
    signals.halt("stuck")
    signals.hold("unconfirmed")
    signals.hold(None)
    signals.hosts(view)
    signals.report(error)
    producer.halt.assert_called_once_with("stuck")
    assert [call.args for call in producer.hold.call_args_list] == [("unconfirmed",), (None,)]
    hosts.show.assert_called_once_with(view)
    thread.report.assert_called_once_with(error)


def test_application_stops_on_the_stream_thread_and_the_signal_does_not_wait(thread: Any) -> None:
    ThreadSignals(thread, Mock(), Mock()).stop_application()
    thread.owner.stop_with_application.assert_not_called()
    assert thread.inbox.serve(None) == 1
    thread.owner.stop_with_application.assert_called_once_with()


def test_report_returns_the_same_measurement_until_there_is_a_new_one() -> None:
    updater: Any = SimpleNamespace(standbys={})
    report = ThreadReport("thread", Mock(), updater, Mock())
    assert report.standby_progress() is updater.standbys
