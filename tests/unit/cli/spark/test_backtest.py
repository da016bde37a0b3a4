"""The command line: exit codes, and one sentence for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streams_py.backtest.generate import History, generate
from streams_py.backtest.sources import Skipped
from streams_py.cli.spark.backtest import LOCAL_ROWS_MAX, app

BAD = "tests.support.backtest.assignors"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("backtest") / "in.jsonl"
    texts = generate(History(tasks=6, clients=3, threads=1, zones=("a", "b")), 4)
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_report_and_verdict_are_there_when_all_goes_well(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("--inputs", inputs, "--out", out, "--what-if", "lose_zone(zone=b)", "--what-if", "")
    assert done.exit_code == 0, done.output
    assert "engine: local, because 36 rows" in done.output  # also for replayed events
    assert "the recorded assignor reproduced 4 of 4" in done.output
    assert "are too few to distinguish" in done.output or "no difference" in done.output
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads((out / "summary.json").read_text(encoding="utf-8"))["verdict"]["ranking"]
    again = run("--inputs", inputs, "--out", out, "--what-if", "lose_zone(zone=b)", "--what-if", "", "--resume")
    assert again.exit_code == 0, again.output


def test_status_is_1_when_a_candidate_cannot_be_used(inputs: Path, tmp_path: Path) -> None:
    done = run("--inputs", inputs, "--out", tmp_path / "o", "--candidate", f"{BAD}:Raises", "--candidate", "sticky")
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines[2].startswith("Raises, ")  # after the engine and the counts
    assert "KeyError" in done.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--candidate", "x=no.such:Class"], "PYTHONPATH"),
        (["--candidate", "x=builtin:best"], "high_availability, sticky"),
        (["--candidate", "sticky", "--candidate", "sticky"], "NAME=SPEC"),
        (["--what-if", "explode()"], "what-if"),
        (["--set", "max.warmup.replicas"], "--set"),
        (["--set", "max.warmup.replicas=0"], "at least 1"),
        (["--base", "unknown"], "is not a candidate"),
    ],
)
def test_status_is_2_with_one_sentence_when_the_command_cannot_be_carried_out(
    inputs: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = run("--inputs", inputs, "--out", tmp_path / "out", *arguments)
    assert done.exit_code == 2
    assert sentence in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--live"],
        ["--group", "app", "--tables", "x"],
        ["--live", "--group", "app", "--tables", "x"],
        ["--live", "--group", "app", "--bootstrap", "embedded"],
        ["--live", "--group", "app", "--assume", "nonsense"],
    ],
)
def test_status_is_2_when_a_running_group_cannot_be_asked_like_this(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert not Path("backtest").exists()


def test_status_is_2_when_there_are_no_inputs_or_two(inputs: Path, tmp_path: Path) -> None:
    assert run("--out", tmp_path / "o").exit_code == 2
    assert run("--inputs", inputs, "--tables", tmp_path, "--out", tmp_path / "o").exit_code == 2
    missing = run("--tables", tmp_path / "none", "--out", tmp_path / "o")
    assert missing.exit_code == 2
    assert "telemetry run" in missing.output
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    nothing = run("--inputs", empty, "--out", tmp_path / "o")
    assert nothing.exit_code == 2
    assert "assignment.events.level" in nothing.output
    assert not (tmp_path / "o").exists()


def test_garbage_leaves_nothing_behind(inputs: Path, tmp_path: Path) -> None:
    garbage, new, empty = tmp_path / "garbage.jsonl", tmp_path / "new", tmp_path / "empty"
    garbage.write_bytes(b"\xff\x00 no JSON\n{}\n")
    empty.mkdir()
    for out in (new, empty):
        done = run("--inputs", garbage, "--out", out)
        assert done.exit_code == 2
        assert "2 lines could not be read" in done.output
        assert "has no complete rebalance" in done.output
    assert not new.exists()
    assert not [*empty.iterdir()]
    assert run("--inputs", inputs, "--out", empty).exit_code == 0, "the same folder again"
    resumed = run("--inputs", garbage, "--out", empty, "--resume")
    assert resumed.exit_code == 2
    assert "has a run with other" in resumed.output
    assert (empty / "report.html").exists()


def test_status_is_2_when_the_folder_is_not_empty(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    done = run("--inputs", inputs, "--out", tmp_path)
    assert done.exit_code == 2
    assert "use a new folder" in done.output


def test_spark_is_refused_with_a_remedy_when_there_is_no_java(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("--inputs", inputs, "--out", tmp_path / "o", "--engine", "spark")
    assert done.exit_code == 2
    assert "Java was not found: install a JDK 17" in done.output


def test_spark_is_refused_with_a_remedy_when_pyspark_is_missing(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    done = run("--inputs", inputs, "--out", tmp_path / "o", "--engine", "spark")
    assert done.exit_code == 2
    assert "pyspark is not installed" in done.output
    assert "kafka-streams-py[spark]" in done.output


def test_spark_is_chosen_when_there_are_many_rows(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    lines = inputs.read_text(encoding="utf-8").splitlines()
    many = tmp_path / "many.jsonl"
    many.write_text("\n".join(lines * (LOCAL_ROWS_MAX // (3 * len(lines)) + 1)), encoding="utf-8")
    done = run("--inputs", many, "--out", tmp_path / "o")
    assert "engine: spark, because there are more than 10,000 rows" in done.output
    assert done.exit_code == 2  # no Java here


def test_what_if_that_fits_nothing_is_wrong_usage(inputs: Path, tmp_path: Path) -> None:
    done = run("--inputs", inputs, "--out", tmp_path / "o", "--what-if", "lose_zone(zone=nowhere)")
    assert done.exit_code == 2
    assert (
        "--what-if 'lose_zone(zone=nowhere)' fits none of the situations: what-if lose_zone: no client" in done.output
    )
    assert not (tmp_path / "o").exists()


def test_history_is_written_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    done = run("generate", "--out", path, "--count", "5", "--tasks", "4", "--clients", "2", "--zones", "")
    assert done.exit_code == 0, done.output
    assert len(path.read_text(encoding="utf-8").splitlines()) == 5
    assert run("generate", "--out", path).exit_code == 2
    nowhere = run("generate", "--out", tmp_path / "nowhere" / "h.jsonl")
    assert nowhere.exit_code == 2
    assert "nowhere/h.jsonl: No such file or directory; name another place" in nowhere.output


def test_python_files_that_are_not_there_are_refused(inputs: Path, tmp_path: Path) -> None:
    done = run("--inputs", inputs, "--out", tmp_path / "out", "--py-files", tmp_path / "none.py")
    assert done.exit_code == 2
    assert "does not exist" in done.output
    assert not (tmp_path / "out").exists()


def test_reason_of_a_line_that_cannot_be_read_is_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def note(self: Skipped, where: str, why: str) -> None:
        self.lines, self.reason = self.lines + 1, "[/red] \x1b]0;owned\x07"

    monkeypatch.setattr(Skipped, "note", note)
    garbage = tmp_path / "garbage.jsonl"
    garbage.write_bytes(b"no JSON\n")
    done = run("--inputs", garbage, "--out", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert r"1 lines could not be read ([/red] \x1b]0;owned\x07)" in done.output
