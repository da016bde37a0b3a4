"""The modules that a command loads: only those that it needs, so that it starts fast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_APP = """
from streams_py import KafkaStreams, StreamsBuilder, serdes

def build_topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").group_by_key().count().to_stream().to("counts")
    return builder

if __name__ == "__main__":
    KafkaStreams(build_topology().build(), "app.properties").run()
"""


@pytest.mark.parametrize("command", [["topology"], ["check-upgrade", "app.py:build_topology"]], ids=lambda c: c[0])
def test_looking_at_a_topology_loads_nothing_that_runs_one(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(_APP, encoding="utf-8")
    program = (
        "import atexit, sys\n"
        "from streams_py.cli.main import main\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "app.py:build_topology"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert "streams_py.runtime.client.kafka_streams" in loaded
    assert not loaded & {
        *("confluent_kafka", "kafka", "rocksdict", "pyspark", "uvicorn", "starlette", "httpx"),
        *("opentelemetry", "prometheus_client", "asyncio"),
        *("streams_py.config.streams_config", "streams_py.runtime.wiring.shared", "streams_py.state.opening.stores"),
    }
    parts = {name.split(".")[1] for name in loaded if name.startswith("streams_py.")}
    assert not parts & {"adapters", "assignment", "events", "leader", "member", "metrics", "spark", "testing"}
