"""``streams-py reset`` on a real broker: the application restarts from the beginning, others do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.cli.groups.reset_plan import Target
from streams_py.cli.groups.resetting import reset_application
from tests.support.broker.kit import Application, text, true_counts


def reset(app: Application, **options: Any) -> int:
    settings: dict[str, Any] = {
        "inputs": (),
        "target": Target(),
        "state_dir": str(app.folder / "one"),
        "dry_run": False,
        "force": False,
        "confirmed": lambda: True,
    }
    return reset_application(app.id, app.broker.bootstrap, None, **{**settings, **options})


def test_an_application_that_was_reset_counts_everything_once_more_from_nothing(
    application: Callable[..., Application], capsys: pytest.CaptureFixture[str]
) -> None:
    app = application()
    lines = text(2_000)
    one = app.start("one")
    app.await_shared(one)
    app.feed(lines)
    app.await_caught_up()

    assert reset(app) == 2, "it is running"
    assert f"{app.id} has 1 member (" in capsys.readouterr().err

    one.close()
    app.until(lambda: reset(app, confirmed=lambda: False) == 1, "its member to have left")
    capsys.readouterr()
    assert reset(app, dry_run=True) == 0
    planned = capsys.readouterr().out
    assert f"delete topic {app.id}-counts-changelog" in planned
    assert f"read {app.input}-0 from 0" in planned
    assert app.caught_up(), "nothing was changed"

    assert reset(app) == 0
    assert not any((app.folder / "one" / app.id).glob("*_*")), "local state is gone"
    left = app.admin.describe_topics(None)
    assert app.input in left

    one = app.start("one")
    app.await_shared(one)
    app.await_caught_up()
    app.until(lambda: app.counts() == true_counts(lines), "counts from nothing: the same, not twice")


def test_what_cannot_be_reset_is_said_before_anything_happens(
    application: Callable[..., Application], capsys: pytest.CaptureFixture[str]
) -> None:
    app = application()
    assert reset(app) == 2
    assert "has neither committed offsets nor internal topics" in capsys.readouterr().err
    assert reset(app, inputs=(app.input + "x",)) == 2
    assert f"did you mean {app.input}?" in capsys.readouterr().err
