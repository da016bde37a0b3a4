"""A broker of the test kit never outlives the process that created it, even if it was not closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import until

PROGRAM = """
import importlib, sys
from streams_py.testing.broker import NoBrokerError
module, name = sys.argv[1].split(".")
try:
    made = getattr(importlib.import_module(f"streams_py.testing.broker.{module}"), name)()
except NoBrokerError as error:
    sys.exit(print("none:", error))
print(made._folder.path, flush=True)
sys.stdin.readline()
"""


def _of_folder(folder: str) -> list[str]:
    listing = subprocess.run(["ps", "-axww", "-o", "command="], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if folder in line]


@pytest.mark.broker
@pytest.mark.parametrize(
    "kind",
    [
        "jvm.JvmBroker",
        *(pytest.param(kind, marks=pytest.mark.weekly) for kind in ("secured.SecuredBroker", "login.LoginBroker")),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.weekly)])
def test_nothing_is_left_when_its_process_is_killed(kind: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = process.stdout.readline().strip()
        if folder.startswith("none:"):
            pytest.skip(f"no broker on this machine: {folder}")
        assert len(_of_folder(folder)) == 2, "the node and its guard"
        os.kill(process.pid, number)
    until(lambda: not _of_folder(folder), "the end of the node")
    until(lambda: not Path(folder).exists(), "the folder's removal")
