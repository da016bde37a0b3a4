"""Commands over history report immediately that no broker answers. Readers on Spark wait for brokers to return."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from streams_py.cli.commands import app
from streams_py.cli.spark import backfill, diff

APP = """
from streams_py import StreamsBuilder, serdes

builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
builder.stream("in").to("out")
"""


@pytest.mark.parametrize(
    "command",
    [
        ["diff", "app.py", "app.py"],
        ["backfill", "app.py", "--out", "outputs"],
        ["backfill", "app.py", "--sinks", "--application-id", "a"],
        ["bootstrap", "plan", "app.py", "--application-id", "a"],
    ],
    ids=" ".join,
)
def test_cluster_that_is_away_is_one_sentence_before_spark_is_started(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (backfill, diff):
        monkeypatch.setattr(module, "spark_of", lambda *_: pytest.fail("Spark was started"))
    Path("app.py").write_text(APP)
    ended = CliRunner().invoke(app, [*command, "--bootstrap", "127.0.0.1:1"])
    assert ended.exit_code == 2, ended.output
    (said,) = ended.stderr.strip().splitlines()
    assert "no broker answers at 127.0.0.1:1" in said
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["app.py"]
