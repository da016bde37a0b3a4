"""Plan files: one process at a time works on a plan, and changed files are refused."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from streams_py.cli.commands import app
from streams_py.errors import ConfigError
from streams_py.history.backfill import BackfillPlan
from streams_py.history.bootstrap import BootstrapPlan
from streams_py.history.plan_files import held, read_plan, save_plan
from tests.support.history.bootstrap import Cluster, planned

_PROGRAM = """
from streams_py import StreamsBuilder, serdes


def topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").to("out")
    return builder.build()
"""


def do(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in (*arguments, "--bootstrap", "127.0.0.1:1")])


def test_plan_is_held_by_one_until_it_ends(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    with (
        held(plan, Path.exists),
        pytest.raises(ConfigError, match=rf"^process {os.getpid()} is working on the plan .*plan.json; stop it"),
        held(plan, Path.exists),
    ):
        pass
    with held(plan, Path.exists) as is_there, held(tmp_path / "other.json", Path.exists):
        assert not is_there, "it need not be there"
    with (
        pytest.raises(ConfigError, match=r"cannot be written \(No such file or directory\); name another file"),
        held(tmp_path / "nowhere" / "plan.json", Path.exists),
    ):
        pass


def test_command_is_refused_while_another_one_works_on_its_plan(tmp_path: Path) -> None:
    program, plan = tmp_path / "program.py", tmp_path / "plan.json"
    program.write_text(_PROGRAM)
    planned(Cluster()).save(plan)
    backfill = ("backfill", f"{program}:topology", "--sinks")
    steps = [(("bootstrap", step), plan) for step in ("run", "verify", "commit", "abort")]
    anew = ("bootstrap", "plan", f"{program}:topology", "--application-id", "shop")
    for command, file in (*steps, (anew, plan), (backfill, tmp_path / "new.json")):
        with held(file, Path.exists):
            refused = do(*command, "--plan", file)
            assert refused.exit_code == 2, refused.output
            assert f"process {os.getpid()} is working on the plan" in refused.output
    missing = do("bootstrap", "run", "--plan", tmp_path / "none.json")
    assert "does not exist; create one" in missing.output
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not the plan of a backfill" in do(*backfill, "--plan", tmp_path / "notes.txt").output
    assert not [*tmp_path.glob(".*")], "nor of a lock is anything left"


def test_lock_that_its_owner_removes_while_it_is_opened_is_not_taken_for_the_one_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.json"
    first, second = held(plan, Path.exists), held(plan, Path.exists)
    flock = fcntl.flock

    def flock_later(file: int, how: int) -> None:  # between opening and locking the first ends, and a second begins
        monkeypatch.setattr(fcntl, "flock", flock)
        first.__exit__(None, None, None)
        second.__enter__()
        flock(file, how)

    first.__enter__()
    monkeypatch.setattr(fcntl, "flock", flock_later)
    with pytest.raises(ConfigError, match="is working on the plan"), held(plan, Path.exists):
        pass
    second.__exit__(None, None, None)
    assert not [*tmp_path.iterdir()]


def test_lock_that_a_killed_process_has_left_is_taken_and_removed(tmp_path: Path) -> None:
    plan, left = tmp_path / "plan.json", tmp_path / ".plan.json.lock"
    left.touch()
    with held(plan, Path.exists):
        assert left.exists()
    assert not left.exists()


def test_plan_is_on_its_disk_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, done = tmp_path / "plan.json", list[str]()
    for name in ("fsync", "replace"):
        step = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, name=name, step=step: (done.append(name), step(*given)))
    save_plan(plan, {"step": "new"})
    assert done == ["fsync", "replace"]
    assert json.loads(plan.read_text())["step"] == "new"
    with pytest.raises(ConfigError, match=r"nowhere/plan.json cannot be written \(No such file or directory\); name"):
        save_plan(tmp_path / "nowhere" / "plan.json", {})


def test_plan_that_was_changed_by_hand_or_is_of_another_version_is_not_believed(tmp_path: Path) -> None:
    """Commands delete topics according to a plan."""
    file = tmp_path / "plan.json"
    backfill = BackfillPlan("shop", "app:topology", "f", {}, None, None, "out", outputs={"out": 1})
    warm_start = BootstrapPlan("shop", "app:topology", "f", [("lines", 0, 0, 5)], [], {"shop-counts-changelog": 1}, {})
    for plan, change in (
        (backfill, {"outputs": [1]}),
        (backfill, {"done": True}),
        (warm_start, {"changelogs": {"lines": 1}}),
        (warm_start, {"ranges": 3}),
        (warm_start, {"settings": None}),
    ):
        plan.save(file)
        assert type(plan).load(file) == plan
        saved = json.loads(file.read_text())
        file.write_text(json.dumps({**saved, **change}))
        with pytest.raises(
            ConfigError, match=r"plan .*plan.json was changed since it was written: restore the original file"
        ):
            type(plan).load(file)
        file.write_text(json.dumps(saved))
        type(plan).load(file)
        file.write_text(json.dumps({**saved, "format": 1, "of another version": True}))
        with pytest.raises(
            ConfigError, match="has format 1, expected 2: continue with the version of this library that"
        ):
            type(plan).load(file)


@pytest.mark.parametrize(
    ("change", "removed"),
    [({"ranges": 3}, ""), ({"step": "dancing"}, ""), ({"written": {"a": [1]}}, ""), ({"more": 1}, ""), ({}, "ranges")],
)
def test_plan_with_values_of_other_types_is_refused(change: dict[str, Any], removed: str, tmp_path: Path) -> None:
    """The hash is right, so another program wrote it."""
    file = tmp_path / "plan.json"
    plan = BootstrapPlan("shop", "app:topology", "f", [("lines", 0, 0, 5)], [], {}, {})
    content = {key: value for key, value in asdict(plan).items() if key != removed}
    save_plan(file, content | change)
    with pytest.raises(ConfigError, match=r"plan.json is not the plan of a warm start; create one with"):
        BootstrapPlan.load(file)


def test_backfill_goes_on_with_the_archives_that_it_was_begun_with(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    given = {"lines": "/archive/lines", "names": {"starting": "{}", "ending": "{}"}}
    plan = BackfillPlan("shop", "app:topology", "f", given, None, None, "out")
    plan.check_archives(file, given)
    plan.check_archives(file, {"lines": {}, "names": {}})  # the plan says which
    with pytest.raises(ConfigError, match="started with lines from /archive/lines, not from /archive/new; pass"):
        plan.check_archives(file, {**given, "lines": "/archive/new"})
    with pytest.raises(ConfigError, match="started with names from Kafka, not from /archive/names; pass"):
        plan.check_archives(file, {**given, "names": "/archive/names"})


def test_backfill_goes_on_over_the_topics_that_it_was_begun_with(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    starts = '{"names": {"0": 0, "1": 7}}'
    given = {"lines": "/archive/lines", "names": {"starting": starts, "ending": starts}}
    ids = {"names": "first", "out": "first"}
    made = BackfillPlan("shop", "app:topology", "f", given, None, None, "out", topic_ids=ids, outputs={"out": 1})
    made.save(file)
    plan = BackfillPlan.load(file)
    assert plan is not None
    counts = {"lines": 9, "names": 2, "out": 1}
    plan.check_topics(file, ids, counts)
    plan.check_topics(file, {}, counts)  # of a cluster that tells none
    with pytest.raises(
        ConfigError, match="when names had 2 partitions, but it has 3 now; start again with another file"
    ):
        plan.check_topics(file, ids, {**counts, "names": 3})
    with pytest.raises(ConfigError, match="when out had 1 partitions, but it has 0 now"):
        plan.check_topics(file, ids, {"names": 2})
    for topic in ids:
        with pytest.raises(ConfigError, match=f"another topic {topic}: it was deleted and created again since; start"):
            plan.check_topics(file, {**ids, topic: "second"}, counts)


def test_backfill_goes_on_with_the_positions_that_it_was_begun_with(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    asked = {"starting": "timestamp:5"}
    plan = BackfillPlan("shop", "app:topology", "f", {}, None, None, "out", asked=asked)
    plan.check_asked(file, asked)
    with pytest.raises(ConfigError, match="started with --option starting=timestamp:5; pass the same as before"):
        plan.check_asked(file, {"starting": "latest"})
    with pytest.raises(ConfigError, match="started without --option ending; pass the same as before"):
        plan.check_asked(file, {**asked, "ending": "latest"})


def test_backfill_goes_on_with_the_partitions_that_it_was_begun_with(tmp_path: Path) -> None:
    file, archives = tmp_path / "plan.json", {"lines": "/archive/lines", "names": "/archive/names"}
    BackfillPlan("shop", "app:topology", "f", archives, None, None, "out", partitions={"lines": 12}).save(file)
    plan = BackfillPlan.load(file)
    assert plan is not None
    plan.check_partitions(file, {})  # the plan says how many
    plan.check_partitions(file, {"lines": 12})
    with pytest.raises(ConfigError, match="started with --partitions lines=12; pass the same as before"):
        plan.check_partitions(file, {"lines": 8})
    with pytest.raises(ConfigError, match="started without --partitions names; pass the same as before"):
        plan.check_partitions(file, {"lines": 12, "names": 3})


def test_plan_of_a_backfill_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    refused = do("backfill", f"{tmp_path / 'program.py'}:topology", "--out", tmp_path / "made", "--plan", "plan.json")
    assert refused.exit_code == 2
    assert "--plan plan.json: plans are only for outputs to topics (--sinks)" in refused.output


@given(st.binary() | st.text(st.sampled_from('{}[]":,0123456789.eE+-NaInfity \\format')).map(str.encode))
def test_any_file_is_a_plan_or_none(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_bytes(data)
        assert read_plan(path, 1) is None


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"format":1,"a":' + b"[" * 700 + b"]" * 700 + b"}",
        b'{"format":1,"a":' + b"1" * 5000 + b"}",
        b'{"format":1,"a":NaN}',
        b'{"format":1,"a":"\\ud800"}',
        b'{"format":{"a":1}}',
        b'{"format":true}',
        b"\xff",
    ],
)
def test_files_that_cannot_be_plans_are_refused_with_one_error(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(data)
    with contextlib.suppress(ConfigError):
        assert read_plan(path, 1) is None
