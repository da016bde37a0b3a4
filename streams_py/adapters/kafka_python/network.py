"""kafka-python's network thread, watched: a task that dies takes what it served with it.

The library logs an exception that nobody expected (an answer it cannot decode, say) and goes on without the task. If
that was the one that reads a connection, the connection stays open, and whoever waits for an answer on it waits until
the request times out, 40 seconds by default. Here the connection is closed, so that its callers fail at once and try
again on a new one. The loop that refreshes the metadata may end for good in the same way; see :func:`revive_refresh`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

from kafka import errors as kafka_errors

from streams_py.system.printable import named

__all__ = ["close_client", "close_with_dead_tasks", "revive_refresh", "wait_for"]

_log = logging.getLogger(__name__)


def close_with_dead_tasks(client: Any) -> None:
    """From now on close a connection of this KafkaNetClient when the task that reads or writes it has died. To be
    called before the network thread is started. Private parts of the library; tests state them."""
    net, manager = client._net, client._manager
    task_done = net._task_done

    def watched(task: Any) -> None:
        task_done(task)
        error = task.exception
        if error is None:
            return
        for connection in list(manager._conns.values()):
            transport = connection.transport
            if transport is not None and task in (transport._read_task, transport._write_task):
                _log.warning("%s: closed, since its answers cannot be read: %r", connection, error)
                connection.close(kafka_errors.KafkaConnectionError(named(error)))

    net._task_done = watched


def revive_refresh(client: Any) -> None:
    """On any thread: start the loop that refreshes the metadata again when an error has ended it. Its owner would not
    notice: topics could come and go, and nobody rejoined."""
    cluster = client.cluster
    loop = cluster._refresh_loop_future
    if loop is None or not loop.is_done or cluster.closed:
        return
    _log.warning("refreshing the metadata had stopped (%r); starting it again", loop.exception)

    def start() -> None:
        if cluster._refresh_loop_future is loop:
            cluster._refresh_loop_future = None
            cluster.start_refresh_loop()

    client._net.call_soon_threadsafe(start)


def wait_for(future: Any, timeout_s: float) -> bool:
    """Wait for a kafka-python future from outside the network thread; False when it takes longer."""
    done = threading.Event()
    future.add_both(lambda _: done.set())
    return done.wait(timeout_s)


def close_client(client: Any, timeout_s: float) -> None:
    """Close the connections on the network thread, which reads them, and then end it. One that does not end in time is
    left behind."""
    net = client._net
    network_thread = net._io_thread
    with contextlib.suppress(Exception):  # a network thread that has died needs no orders
        wait_for(net.call_soon_with_future(client._manager.close), timeout_s)
        net.stop(timeout_ms=timeout_s * 1000)
    if network_thread is not None and network_thread.is_alive():
        _log.warning("%s did not stop within %.0f s; it is left behind", network_thread.name, timeout_s)
        return
    net.close()
