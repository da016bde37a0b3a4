"""Commands that inspect groups: contradictory options are refused before any request."""

from __future__ import annotations

import tempfile

import pytest

from tests.support.cli import one_sentence, run


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--group", "g", "--from", "group.json"], "--group explains a running group"),
        (["--group", "g", "--case", "1"], "--group explains a running group"),
        (["--set", "num.standby.replicas=1"], "--set applies to a running group"),
        (["--group", "g", "--set", "num.standby.replicas"], "expected KEY=VALUE"),
        (["--group", "g", "--config", "absent.toml"], "absent.toml"),
        (["--group", "g", "--set", "acceptible.recovery.lag=5"], "did you mean 'acceptable.recovery.lag'?"),
        (["--group", "g", "--set", "acceptable.recovery.lag=many"], "acceptable.recovery.lag"),
        (["--group", "g", "--assignor", "fastest"], "'fastest'"),
        (["nonsense", "--group", "g"], "'nonsense' is not a task id"),
    ],
)
def test_options_of_explain_that_do_not_fit_are_refused(arguments: list[str], why: str) -> None:
    assert why in one_sentence(run("explain", *arguments))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ["dashboard", "--group", "g", "--set", "acceptible.recovery.lag=5"],
            "did you mean 'acceptable.recovery.lag'?",
        ),
        (["dashboard", "--group", "g", "--assignor", "fastest"], "'fastest'"),
        (
            ["backtest", "--live", "--group", "g", "--assume", "num.standby.replica=1"],
            "did you mean 'num.standby.replicas'?",
        ),
    ],
)
def test_settings_that_no_group_can_have_are_refused_before_anybody_is_asked(arguments: list[str], why: str) -> None:
    assert why in one_sentence(run(*arguments))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--watch", "2"], "--watch and --tasks show one group; give --group as well"),
        (["--tasks"], "--watch and --tasks show one group; give --group as well"),
        (["--group", "g", "--json", "--watch", "2"], "--watch is for a terminal and --json for programs"),
    ],
)
def test_options_of_inspect_that_do_not_fit_are_refused(arguments: list[str], why: str) -> None:
    assert why in one_sentence(run("inspect", *arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "-g", "g"],
        ["inspect"],
        ["explain", "-g", "g"],
        ["dashboard", "-g", "g"],
        ["reset", "-a", "g", "--dry-run"],
    ],
)
def test_question_about_groups_on_the_embedded_cluster_is_refused_at_once(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # short, because it is the path of a socket
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        assert one_sentence(run(*arguments, "--bootstrap", "embedded")) == (
            "the embedded cluster gives no information about groups; name a Kafka broker with --bootstrap host:port"
        )
