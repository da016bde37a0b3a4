"""A command that is terminated cleans up everything that it has started."""

from __future__ import annotations

import subprocess
import sys


def test_sigterm_lets_a_command_put_away_what_it_has_started() -> None:
    program = (
        "import os, signal, sys\n"
        "import streams_py.testing.broker as broker\n"
        "def find_broker(**options):\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        signal.pause()\n"
        "    finally:\n"
        "        print('put away')\n"
        "broker.find_broker = find_broker\n"
        "from streams_py.cli.main import main\n"
        "sys.argv = ['streams-py', 'torture']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 130, done.stderr
    assert done.stdout == "put away\n"
    assert "Traceback" not in done.stderr
