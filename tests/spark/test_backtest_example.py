"""The example, as a user starts it: from three processes to a choice of assignor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "examples.backtest"]


def environment(**changes: str) -> dict[str, str]:
    given = {**os.environ, "COLUMNS": "120", **changes}
    given.pop("BOOTSTRAP", None)
    return given


@pytest.mark.weekly
@pytest.mark.timeout(600)
def test_example_ends_with_a_choice_and_two_reports(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, str(tmp_path)], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    output = done.stdout
    assert done.returncode == 0, output + done.stderr[-3_000:]
    for text in ("C is killed", "high_availability", "sticky", "heavy_on_large", "recorded assignor reproduced"):
        assert text in output, output
    assert "Choose " in output or "Stay with what you have" in output  # a few events do not justify a change
    assert "Choose warm: tasks whose copies share a zone or tag" in " ".join(output.split())
    assert "resampled histories give the same choice" in " ".join(output.split())
    assert "Best first: warm; then default" in (tmp_path / "generated" / "report.html").read_text(encoding="utf-8")
    report = tmp_path / "backtest" / "report.html"
    assert f"report: {report}" in output
    assert "Which one to choose" in report.read_text(encoding="utf-8")
    assert (tmp_path / "telemetry.html").stat().st_size > 5_000
    results = json.loads((tmp_path / "backtest" / "summary.json").read_text(encoding="utf-8"))["results"]
    recorded, again = (
        next(of for of in results if (of["scenario"], of["candidate"]) == ("", name))
        for name in ("recorded", "high_availability")
    )
    for scores in (recorded["figures"], again["figures"]):
        assert scores["moved_active"]["worst"] > 0
    # The group was led by the high-availability assignor: deciding again changes nothing.
    decided = recorded["figures"].keys()
    assert {name: again["figures"][name] for name in decided} == recorded["figures"]


def test_example_says_what_is_missing_when_there_is_no_java(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, str(tmp_path)],
        cwd=ROOT,
        env=environment(JAVA_HOME=str(tmp_path / "nowhere")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "set JAVA_HOME" in done.stdout
