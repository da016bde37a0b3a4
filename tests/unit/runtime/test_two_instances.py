"""Histories of two instances: moves, copies, failures at any step (see :mod:`.two_instances`).

Seed 43 once counted a record twice: a transaction that a revocation could not commit was committed by the next one.

"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runtime.two_instances import TwoInstances


def live(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = TwoInstances(seed, folder, monkeypatch)
    try:
        history.run()
        history.check()
    except BaseException as error:
        error.add_note(f"seed {seed}: {history.log}")
        raise
    finally:
        history.end()


@pytest.mark.parametrize("seed", [*range(8), 43])
def test_every_effect_is_there_and_every_store_is_the_fold_of_its_changelog(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(seed, tmp_path, monkeypatch)


@pytest.mark.weekly
@pytest.mark.parametrize("first", range(1_000, 2_000, 50))
def test_the_same_for_many_histories(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as monkeypatch:
            live(seed, folder, monkeypatch)
