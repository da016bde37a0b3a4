"""The command that gives a user a real broker in a terminal."""

from __future__ import annotations

import pytest

from streams_py.testing.broker.__main__ import main
from streams_py.testing.broker.jars import why_no_jvm
from streams_py.testing.broker.jvm import JvmCluster, free_ports

pytestmark = [pytest.mark.broker, pytest.mark.weekly]


@pytest.fixture(autouse=True)
def _java() -> None:
    reason = why_no_jvm()
    if reason is not None:  # brokers of this machine come from Docker, or from elsewhere
        pytest.skip(f"the command runs Kafka on this machine's Java: {reason}")


def test_start_kill_start_and_stop_with_delete(tmp_path, capsys):
    folder = tmp_path / "kafka"
    port = free_ports(1)[1].broker
    start = ["start", "--dir", str(folder), "--port", str(port)]
    try:
        assert main(start) == 0
        assert capsys.readouterr().out == f"127.0.0.1:{port}\n"
        (node,) = JvmCluster(folder).nodes
        first = node.pid()
        assert main(["kill", "--dir", str(folder), "--node", "1"]) == 0
        assert node.pid() is None
        assert main(start) == 0
        assert node.pid() not in (None, first)
    finally:
        assert main(["stop", "--dir", str(folder), "--delete"]) == 0
    assert not folder.exists()
