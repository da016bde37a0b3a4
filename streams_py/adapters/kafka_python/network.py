"""Handle failed tasks of kafka-python's network thread.

When a task fails with an unexpected exception (for example, a response that cannot be decoded), kafka-python logs the
exception and continues without the task. If the task reads a connection, the connection stays open, and callers wait
for their response until the request times out (40 seconds by default). So the functions here close such a connection.
Its callers then fail immediately and retry with a new connection. The loop that refreshes the metadata can stop in the
same way, see :func:`revive_refresh`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

from kafka import errors as kafka_errors

from streams_py.system.printable import named

_log = logging.getLogger(__name__)


def close_with_dead_tasks(client: Any) -> None:
    """Close each connection of this KafkaNetClient whose reading or writing task fails.

    Call this before the network thread is started. It uses private parts of the library, which tests verify.
    """
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
                _log.warning("%s: closed, because its responses cannot be read: %r", connection, error)
                connection.close(kafka_errors.KafkaConnectionError(named(error)))

    net._task_done = watched


def revive_refresh(client: Any) -> None:
    """Restart the loop that refreshes the metadata if an error has ended it. May be called on any thread.

    The library does not notice that the loop has ended. Without it, new and deleted topics would not cause a rebalance.
    """
    cluster = client.cluster
    loop = cluster._refresh_loop_future
    if loop is None or not loop.is_done or cluster.closed:
        return
    _log.warning("the metadata refresh loop has failed (%r); restarting it", loop.exception)

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
    """Close the connections on the network thread, which reads them, then stop the thread.

    If the thread does not stop in time, it is left running.
    """
    net = client._net
    network_thread = net._io_thread
    with contextlib.suppress(Exception):  # a network thread that has died cannot be called
        wait_for(net.call_soon_with_future(client._manager.close), timeout_s)
        net.stop(timeout_ms=timeout_s * 1000)
    if network_thread is not None and network_thread.is_alive():
        _log.warning("%s did not stop within %.0f s; it is left running", network_thread.name, timeout_s)
        return
    net.close()
