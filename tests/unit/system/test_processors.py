"""How many processors a process may use, also in a container with a share of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from streams_py.system.processors import usable_processors


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5}, raising=False)


@pytest.mark.parametrize(
    ("said", "usable"),
    [
        ("max 100000\n", 4),
        ("100000 100000\n", 1),
        ("150000 100000\n", 1),
        ("300000 100000\n", 3),
        ("50000 100000\n", 1),
        ("900000 100000\n", 4),
        ("", 4),
        ("100000\n", 4),
        ("100000 0\n", 4),
        ("0 100000\n", 4),
        ("-1 100000\n", 4),
        ("one two\n", 4),
        ("\x00\xff \n", 4),
        ("1" * 10_000 + " 1\n", 4),
    ],
)
def test_share_of_a_container_is_counted_in_whole_processors(tmp_path: Path, said: str, usable: int) -> None:
    (tmp_path / "cpu.max").write_text(said, encoding="latin-1")
    assert usable_processors(tmp_path) == usable


@pytest.mark.parametrize(
    ("quota", "period", "usable"), [("-1", "100000", 4), ("100000", "100000", 1), ("200000", "100000", 2), ("1", "", 4)]
)
def test_share_of_a_container_of_the_former_kind_is_counted(
    tmp_path: Path, quota: str, period: str, usable: int
) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text(f"{period}\n")
    assert usable_processors(tmp_path) == usable


def test_machine_without_control_groups_has_all_of_its_processors(tmp_path: Path) -> None:
    assert usable_processors(tmp_path / "nowhere") == 4
    (tmp_path / "cpu.max").mkdir()
    assert usable_processors(tmp_path) == 4
