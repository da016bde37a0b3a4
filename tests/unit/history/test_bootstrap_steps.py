"""Each command of a warm start is allowed only at certain steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streams_py.errors import ConfigError
from streams_py.history.bootstrap import Step
from streams_py.history.bootstrap_ends import abort, commit
from tests.support.history.bootstrap import Cluster, at_step


@pytest.mark.parametrize("step", [step for step in Step if step not in (Step.VERIFIED, Step.COMMITTING)])
def test_nothing_is_committed_before_it_is_verified_or_when_it_is_done_with(step: Step, tmp_path: Path) -> None:
    cluster = Cluster()
    plan = at_step(cluster, step)
    with pytest.raises(ConfigError, match=f"is {step.value}: "):
        commit(plan, tmp_path / "plan.json", cluster)
    assert cluster.offsets == {}


def test_committed_plan_is_not_taken_back() -> None:
    cluster = Cluster()
    plan = replace(at_step(cluster, Step.VERIFIED), step=Step.COMMITTED)
    before = list(cluster.done)
    with pytest.raises(ConfigError, match="is committed; to start again, reset the application"):
        abort(plan, cluster)
    assert cluster.done == before
