"""Signals to a program in ``run``: the first closes it and logs what the close waits for, the second terminates it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

_PROGRAM = """
import sys, threading, time
from pathlib import Path
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.runtime.thread.states import State
from tests.support.runtime.world import World, copying

def user_code_that_hangs():
    print("hanging", flush=True)
    while "hangs" in sys.argv:
        time.sleep(0.1)

def listen(new, old):
    if new is State.RUNNING:
        print("running", flush=True)

world = World(**{"in": 1, "out": 1})
config = {"application.id": "app", "bootstrap.servers": "world:9092", "state.dir": sys.argv[1],
          "dsl.store.suppliers.class": "in_memory"}
streams = KafkaStreams(copying(), config, clients=world, on_state=listen)
open_loop = streams._threads._factory._open_loop

def open_and_hang(thread):
    loop = open_loop(thread)
    table = loop.parts.table
    table.initialize_pending = table.all_ready = lambda: user_code_that_hangs() or True
    return loop

streams._threads._factory._open_loop = open_and_hang
streams.run(drain=0.3 if "drains" in sys.argv else None)
print("closed", flush=True)
"""


@pytest.fixture
def program(tmp_path: Path):
    made = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        made.append(
            subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(tmp_path), *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_closes(program, number: signal.Signals) -> None:
    process = program()
    assert process.stdout.readline() == "hanging\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert out.endswith("closed\n")
    assert "Traceback" not in err


def test_signal_drains_first_when_that_was_asked_for(program) -> None:
    process = program("drains")
    assert process.stdout.readline() == "hanging\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert out.endswith("closed\n")
    assert "not drained after 0." in err  # no other instance runs


def test_close_that_waits_for_user_code_names_it_and_a_second_signal_ends_the_process(program) -> None:
    process = program("hangs")
    assert process.stdout.readline() == "hanging\n"
    process.send_signal(signal.SIGINT)
    word = ""
    limit = time.monotonic() + PATIENCE_S
    while "waiting for" not in word and time.monotonic() < limit:
        word = process.stderr.readline()
    assert "StreamThread-1 is in <string>:" in word
    assert "(user_code_that_hangs)" in word
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGTERM
