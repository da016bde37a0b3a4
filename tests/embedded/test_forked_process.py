"""A process that is forked while a client runs: calls fail immediately, a new client works, and nothing hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, signal, sys, time
from streams_py import KafkaStreams, State, StreamsBuilder, serdes
from streams_py.errors import IllegalStateError
from confluent_kafka import Producer
from streams_py.testing.broker.embedded import EmbeddedBroker

signal.alarm(60)
broker = EmbeddedBroker()
broker.create_topic("in", 1)
builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
builder.stream("in").group_by_key().count(store="s")
topology = builder.build()

def client(name):
    folder = os.path.join(sys.argv[1], name)
    settings = {"application.id": name, "bootstrap.servers": broker.url, "state.dir": folder}
    return KafkaStreams(topology, settings | {"auto.offset.reset": "earliest"})

def send():
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("in", b"v", b"k")
    assert producer.flush(30) == 0

def working(streams):
    streams.start()
    assert streams.wait_until(State.RUNNING, 60)
    send()
    return streams

def child(run, status=0):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # the parent's is not inherited
        run()
        sys.exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status

def refused(call):
    try:
        call()
    except IllegalStateError as error:
        assert f"was started by process {os.getppid()}" in str(error), error
        assert "create and start a new KafkaStreams here" in str(error), error
    else:
        raise AssertionError(call)
"""

_CASES = {
    "all public names of a client that runs": """
def run():
    for name in [name for name in dir(KafkaStreams) if not name.startswith("_")]:
        refused(lambda: getattr(streams, name))
    refused(lambda: streams.__enter__())
    refused(lambda: view.get("k"))
    refused(lambda: view["k"])
    refused(lambda: len(list(view)))
    assert isinstance(streams, KafkaStreams)

child(run)
""",
    "an exit inside of a with block": """
def run():
    with client("other"):
        child(lambda: None, 4)
    sys.exit(3)

child(run, 3)
try:
    with client("third") as third:
        pid = os.fork()
        if pid == 0:
            raise SystemExit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        assert third.state in (State.RUNNING, State.REBALANCING)
finally:
    assert os.getpid() == parent or sys.exc_info()[0] is SystemExit
""",
    "a new client": """
def run():
    other = working(client("other"))
    until(lambda: other.store("s").get("k") == 1)
    other.close()
    assert other.state is State.NOT_RUNNING

child(run)
""",
    "a client that was not started yet": """
made = client("other")

def run():
    working(made)
    until(lambda: made.store("s").get("k") == 1)
    made.close()

child(run)
""",
    "a client that was closed before": """
closed = working(client("other"))
closed.close()

def run():
    assert closed.state is State.NOT_RUNNING
    assert closed.close()

child(run)
""",
    "a pool of workers": """
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
""",
}


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES.keys())
def test_forked_process_never_uses_the_client_of_its_parent(case: str, tmp_path: Path) -> None:
    before = """
def until(condition):
    while True:
        try:
            if condition():
                return
        except Exception as error:
            if not getattr(error, "retriable", False):
                raise
        time.sleep(0.02)

parent = os.getpid()
streams = working(client("app"))
until(lambda: streams.store("s").get("k") == 1)
view = streams.store("s")
"""
    after = """
assert streams.state is State.RUNNING
seen = view.get("k")
send()
until(lambda: view.get("k") == seen + 1)
streams.close()
"""
    command = [sys.executable, "-c", _PROGRAM + before + case + after, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
