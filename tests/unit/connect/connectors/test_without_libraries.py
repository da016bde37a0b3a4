from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["postgresql_sink", "postgresql_source"])
def test_a_postgresql_connector_without_its_library_says_what_to_install(module: str) -> None:
    program = f"import sys; sys.modules['psycopg'] = None; import streams_py.connect.connectors.{module}"
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120)
    assert 'pip install "kafka-streams-py[postgresql]"' in ended.stderr


def test_everything_else_of_the_package_needs_no_extra() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('psycopg', 'starlette', 'uvicorn', 'httpx')));"
        "import streams_py, streams_py.connect.connectors.file_source, streams_py.connect.connectors.file_sink;"
        "streams_py.KafkaStreams"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
