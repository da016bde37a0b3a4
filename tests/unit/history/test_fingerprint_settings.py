"""The steps of a plan need the settings with which it was made."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams_py.cli.spark import bootstrap
from streams_py.cli.spark.bootstrap import bootstrap_app
from streams_py.errors import ConfigError
from streams_py.history.bootstrap_planning import BootstrapAllowances, make_plan
from streams_py.history.fingerprint import check_settings, marks_of
from streams_py.history.loading import load_topology
from tests.support.history.bootstrap import APP, Cluster

BASE = {"application.id": APP}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("default.key.serde", "string"),
        ("default.value.serde", "long"),
        ("default.timestamp.extractor", "wall_clock"),
        ("deserialization.exception.handler", "log_and_continue"),
        ("processing.exception.handler", "log_and_continue"),
        ("topology.optimization", "all"),
        ("dsl.store.suppliers.class", "in_memory"),
        ("app.tax", "0.2"),
    ],
)
def test_setting_that_decides_what_comes_out_is_named_when_it_has_changed(key: str, value: str) -> None:
    for before, now in ((BASE, {**BASE, key: value}), ({**BASE, key: value}, BASE)):
        with pytest.raises(ConfigError, match=f"{key} has changed since plan.json was made.*pass the same --config"):
            check_settings(marks_of(before), now, "plan.json")
        check_settings(marks_of(now), now, "plan.json")
    assert value not in str(marks_of({**BASE, key: value})), "values may be confidential"


def test_other_settings_may_change() -> None:
    before = {**BASE, "bootstrap.servers": "one:1", "num.stream.threads": 1, "sasl.password": "word"}
    check_settings(marks_of(before), {**BASE, "bootstrap.servers": "two:1", "commit.interval.ms": 5}, "plan.json")


def test_default_that_is_said_is_no_change() -> None:
    said = {**BASE, "deserialization.exception.handler": "log_and_fail", "topology.optimization": "none"}
    check_settings(marks_of(BASE), said, "plan.json")
    check_settings({}, {**BASE, "default.value.serde": "long"}, "a plan without marks")


def test_run_without_the_configuration_of_its_plan_is_refused_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, file = tmp_path / "program.py", tmp_path / "plan.json"
    program.write_text(
        "from streams_py import StreamsBuilder\n\n\ndef topology():\n    builder = StreamsBuilder()\n"
        '    builder.stream("lines").group_by_key().count(store="counts")\n    return builder.build()\n'
    )
    name = f"{program}:topology"
    config = {**BASE, "default.key.serde": "string", "default.value.serde": "string"}
    plan, _ = make_plan(name, load_topology(name), APP, config, Cluster(), BootstrapAllowances())
    plan.save(file)

    class Connected(Cluster):
        def close(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(bootstrap, "connected", lambda settings: closing(Connected()))
    monkeypatch.setattr(bootstrap, "spark_of", lambda *_: pytest.fail("Spark was started"))
    done = CliRunner(env={"COLUMNS": "400"}).invoke(bootstrap_app, ["run", "--plan", str(file)])
    assert done.exit_code == 2, done.output
    assert f"default.key.serde has changed since {file} was made" in done.stderr
