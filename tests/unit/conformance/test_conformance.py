"""The conformance command: what it finds, counts, prints and returns."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.command import check_file, main, vector_files

VECTORS = Path(__file__).parents[3] / "protocol" / "vectors"


def cases(name: str, count: int) -> list[dict[str, Any]]:
    with (VECTORS / name).open(encoding="utf-8") as file:
        return [json.loads(line) for _, line in zip(range(count), file)]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def changed_hex(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the last digit of its bytes changed."""
    digits = case["hex"]
    return {**case, "hex": digits[:-1] + ("0" if digits[-1] != "0" else "1")}


def test_all_recorded_bytes_are_equal_and_the_status_is_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(VECTORS / "assignment_info.jsonl")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "528 passed, 0 failed"
    assert "528 cases, 528 equal, 0 different, 0 not supported" in lines[0]


def test_a_changed_byte_is_named_and_the_status_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = cases("assignment_info.jsonl", 5)
    path = write(tmp_path / "assignment_info.jsonl", [*good[:3], changed_hex(good[3]), good[4]])
    assert main([str(path)]) == 1
    out = capsys.readouterr().out
    assert good[3]["id"] in out
    assert out.splitlines()[-1] == "4 passed, 1 failed"


def test_a_renamed_and_packed_file_is_recognised_by_its_content(tmp_path: Path) -> None:
    path = write(tmp_path / "kept-back-7.jsonl.gz", cases("subscription_info.jsonl", 20))
    assert check_file(path).equal == 20


def test_a_folder_is_searched_and_every_file_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "assignment_info.jsonl", cases("assignment_info.jsonl", 2))
    write(tmp_path / "deeper" / "connect.jsonl", cases("connect.jsonl", 3))
    (tmp_path / "notes.txt").write_text("not a vector file")
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[-1] == "5 passed, 0 failed"


def test_an_unreadable_line_is_a_difference_and_the_rest_still_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "assignment_info.jsonl", cases("assignment_info.jsonl", 2))
    path.write_text(path.read_text() + "{ not json\n[1, 2]\n")
    result = check_file(path)
    assert result.equal == 2
    assert list(result.different) == ["line 3", "line 4"]


def test_a_truncated_archive_is_a_difference(tmp_path: Path) -> None:
    path = write(tmp_path / "assignment_info.jsonl.gz", cases("assignment_info.jsonl", 50))
    path.write_bytes(path.read_bytes()[:-200])
    assert check_file(path).different


@pytest.mark.parametrize("content", ["", '{"id": "x", "colour": "blue"}\n'])
def test_a_file_without_known_cases_fails(tmp_path: Path, content: str) -> None:
    path = tmp_path / "anything.jsonl"
    path.write_text(content)
    assert main([str(path)]) == 1


def test_a_case_of_something_not_supported_gives_its_own_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.conformance import wire
    from tests.conformance.case import NotSupportedCaseError

    def refuse(kind: str, case: dict[str, Any]) -> str | None:
        raise NotSupportedCaseError("telepathy")

    monkeypatch.setattr(wire, "run_wire_case", refuse)
    path = write(tmp_path / "assignment_info.jsonl", cases("assignment_info.jsonl", 2))
    assert main([str(path)]) == 3
    out = capsys.readouterr().out
    assert "2 not supported (telepathy)" in out
    assert out.splitlines()[-1].startswith("0 passed, 0 failed")


def test_logging_is_as_before_when_the_command_has_ended(tmp_path: Path) -> None:
    before = logging.root.manager.disable, logging.getLogger("streams_py").level
    main([str(write(tmp_path / "few.jsonl", cases("assignment_info.jsonl", 1)))])
    assert (logging.root.manager.disable, logging.getLogger("streams_py").level) == before


def test_a_missing_path_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "nowhere")])
    assert ended.value.code == 2
    assert "does not exist" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        vector_files([tmp_path / "nowhere"])
