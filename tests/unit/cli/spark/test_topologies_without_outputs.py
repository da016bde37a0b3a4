"""Commands that write or compare outputs refuse a topology without outputs before they start Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from streams_py.cli.commands import app

APP = """
from streams_py import StreamsBuilder, serdes

builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
builder.stream("in").group_by_key().count(store="counts")
"""


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["diff", "app.py", "app.py"], "app.py"),
        (["diff", "app.py", "other.py"], "app.py and other.py"),
        (["backfill", "app.py", "--out", "outputs"], "app.py"),
        (["backfill", "app.py", "--sinks", "--application-id", "a"], "app.py"),
    ],
)
def test_nothing_to_write_or_to_compare_is_said_before_anything_is_begun(
    command: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("app.py", "other.py"):
        Path(name).write_text(APP)
    ended = CliRunner().invoke(app, [*command, "--bootstrap", "127.0.0.1:1"])
    assert ended.exit_code == 2, ended.output
    (said,) = ended.stderr.strip().splitlines()
    assert f"error: {named}: no output topic; add a to() to the topology" in said
