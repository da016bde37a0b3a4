"""The command ``streams-py``: its output and its exit status."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command

from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.registry import assignor_name
from streams_py.cli.commands import app
from streams_py.cli.panels import PANELS
from streams_py.testing.checkers import PROMISES
from tests.support.cli import WIDE, one_sentence, run

ROOT = Path(__file__).resolve().parents[3]
PARTS = {
    "topology": ["describe"],
    "new": ["app"],
    "connect": ["worker", "status"],
    "bootstrap": ["plan", "run", "verify", "commit", "abort"],
    "telemetry": ["run", "report", "placement", "moves"],
    "backtest": [],
}
COMMANDS = [
    [name, *part]
    for names in PANELS.values()
    for name in names
    for part in ([[part] for part in PARTS[name]] if name in PARTS else [[]])
]


# -- help ----------------------------------------------------------------------------------------------------


def test_help_names_all_commands_of_all_parts() -> None:
    shown = run("--help").output
    assert "--install-completion" in shown
    for panel, names in PANELS.items():
        assert panel in shown
        for name in names:
            assert f" {name} " in shown


def test_every_command_stands_under_one_heading() -> None:
    names = [name for listed in PANELS.values() for name in listed]
    assert len(names) == len(set(names))


def test_list_of_commands_repeats_the_first_sentence_of_each_help() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for listed in PANELS.values():
        for name, (_, summary) in listed.items():
            assert commands[name].help.split("\n\n")[0] == summary


def test_explain_without_a_group_asks_for_one() -> None:
    assert one_sentence(run("explain", "0_1")).startswith("no group given; name a running one with --group")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_of_each_command_shows_an_example_that_begins_with_its_name(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"streams-py {' '.join(command)}" in result.output.split("Example", 1)[1]


def test_command_says_which_extra_is_missing_when_typer_is_not_installed() -> None:
    program = "import sys; sys.modules['typer'] = None; from streams_py.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    assert "pip install 'kafka-streams-py[cli]'" in done.stderr


@pytest.mark.parametrize("width", [60, 80, 131])
def test_help_flows_to_the_edge_of_the_terminal(width: int) -> None:
    for command in (["explain"], ["consume"], ["connect", "worker"], ["torture"], ["backtest"]):
        shown = run(*command, "--help", columns=width).output.partition("╭")[0]
        lines = [line.rstrip() for line in shown.splitlines()]
        for line, following in pairwise(lines):
            if line and following and not line.startswith("  ") and not following.startswith("  "):
                word = following.split()[0]
                assert len(f"{line} {word}") > width - 1, f"{word!r} had room behind {line!r}"


def test_help_needs_no_spark() -> None:
    program = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'pandas', 'numpy', 'kafka', 'confluent_kafka'): sys.modules[name] = None\n"
        "from streams_py.cli.main import main\n"
        "sys.argv = ['streams-py', '--help']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "telemetry" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-command"], "No such command 'no-such-command'; see "),
        (["inspekt"], "Did you mean 'inspect'? See "),
        (["connect", "no-such-command"], "No such command 'no-such-command'; see "),
        (["simulate", "--schedules", "many"], "'--schedules' / '-n': "),
        (["simulate", "--no-such-option"], "No such option: --no-such-option"),
        (["produce"], "Missing argument 'topic'; see "),
        (["produce", "lines", "--key"], "Option '--key' requires an argument"),
        (["topics", "superfluous"], "(superfluous); see "),
        (["run", "app.py", "--drain", "-1"], "'--drain': "),
        (["topology", "app.py", "--svg", "--dot"], "only one of --svg, --mermaid and --dot"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_sentence_that_names_the_help(arguments: list[str], said: str) -> None:
    assert said in one_sentence(run(*arguments))


@pytest.mark.parametrize("group", [[], ["connect"], ["topology"], ["new"], ["telemetry"]], ids=" ".join)
def test_no_command_at_all_ends_with_2_and_shows_the_help(group: list[str]) -> None:
    result = run(*group)
    assert result.exit_code == 2
    assert "Usage: " in result.output
    assert result.stderr == ""


def test_question_that_nobody_answers_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def asks(*arguments: object, confirmed: Callable[[], bool], **options: object) -> int:
        return int(confirmed())

    monkeypatch.setattr("streams_py.cli.groups.resetting.reset_application", asks)
    result = run("reset", "-a", "word-count")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "a question was not answered; nothing was done"


def test_ctrl_c_ends_quietly_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("streams_py.cli.development.simulating.run_schedules", interrupted)
    result = run("simulate")
    assert result.exit_code == 130
    assert "Traceback" not in result.output + result.stderr


# -- version, topology ---------------------------------------------------------------------------------------


def test_version_tells_what_a_bug_report_needs() -> None:
    shown = dict(line.split(maxsplit=1) for line in run("version").output.splitlines())
    assert shown["kafka-streams-py"] == metadata.version("kafka-streams-py")
    assert shown["python"].startswith("3.")
    assert {"platform", "kafka-python", "confluent-kafka", "rocksdict", "pydantic"} <= shown.keys()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "an_application_of_these_tests"
    (tmp_path / f"{name}.py").write_text(
        "from streams_py import StreamsBuilder\n"
        "def build():\n"
        "    builder = StreamsBuilder()\n"
        "    builder.stream('in').filter(lambda k, v: True).to('out')\n"
        "    return builder\n"
        "topology = build().build()\n"
        "number = 17\n"
        "def fails():\n"
        "    raise OSError('no such thing')\n"
    )
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["build", "topology"])
def test_topology_is_described_from_a_function_or_an_object(module: str, name: str) -> None:
    result = run("topology", "describe", f"{module}:{name}")
    assert result.exit_code == 0, result.output
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: [in])" in result.output
    assert "(topic: out)" in result.output


@pytest.mark.parametrize(
    ("form", "start"), [("--svg", "<svg "), ("--mermaid", "flowchart TD"), ("--dot", "digraph topology {")]
)
def test_topology_of_a_file_is_drawn(module: str, form: str, start: str) -> None:
    result = run("topology", f"{module}.py", form)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(start)
    assert "KSTREAM-FILTER-0000000001" in result.output


def test_two_pictures_at_once_are_refused(module: str) -> None:
    result = run("topology", f"{module}.py", "--svg", "--dot")
    assert result.exit_code == 2
    assert "only one of" in result.stderr


def test_file_with_two_topologies_needs_a_name(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text("from streams_py import StreamsBuilder\na, b = StreamsBuilder(), StreamsBuilder()\n")
    assert "has a, b: choose one with" in one_sentence(run("topology", str(path)))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("nonsense", "neither module:name"),
        ("no_such_module_here:x", "cannot be imported: ModuleNotFoundError"),
        ("no_such.module:x", "named 'no_such'; change to the folder that contains no_such, or add it to PYTHONPATH"),
        ("{module}:missing", "has no missing"),
        ("{module}:number", "is of type int; it must be a StreamsBuilder"),
        ("{module}:fails", "OSError: no such thing"),
    ],
)
def test_topology_that_is_none_is_refused_in_one_sentence(module: str, what: str, why: str) -> None:
    assert why in one_sentence(run("topology", "describe", what.format(module=module)))


# -- explain -------------------------------------------------------------------------------------------------

GROUP = {
    "assignor": "high_availability",
    "configs": {"num.standby.replicas": 1, "acceptable.recovery.lag": 100},
    "tasks": {"0_0": 5000, "0_1": 5000, "1_0": None},
    "clients": {
        "A": {"threads": 2, "offsets": {"0_0": "running"}},
        "B": {"offsets": {"0_1": 4990}, "rack": "r1", "tags": {"zone": "z1"}},
    },
}


def test_example_of_the_help_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    shown = run("explain", "--help").output
    text = shown[shown.index('{"assignor"') : shown.index("}}}}") + 4]
    assert json.loads(text) == GROUP
    path.write_text(text)
    result = run("explain", "0_1", "--from", str(path))
    assert result.exit_code == 0, result.output
    assert result.output.startswith("0_1 is active on B")
    everything = run("explain", "--from", str(path)).output
    assert [line.split()[0] for line in everything.splitlines() if not line.startswith(" ")] == ["0_0", "0_1", "1_0"]


@pytest.mark.parametrize("assignor", ["high_availability", "sticky", "static", "legacy_sticky", "fallback"])
def test_every_assignor_of_ours_can_be_asked(tmp_path: Path, assignor: str) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUP))
    result = run("explain", "--from", str(path), "--assignor", assignor)
    assert result.exit_code == 0, result.stderr
    assert [line[:4] for line in result.output.splitlines() if " is active on " in line] == ["0_0 ", "0_1 ", "1_0 "]


def test_explanation_can_be_had_as_data(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUP))
    (explanation,) = json.loads(run("explain", "0_0", "--from", str(path), "--json").output)
    assert (explanation["task"], explanation["limits"]["num_standby_replicas"]) == ("0_0", 1)


def test_recorded_assign_step_is_explained() -> None:
    path = ROOT / "tests" / "vectors" / "leader" / "leader.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        first = json.loads(next(lines))
    result = run("explain", "--from", str(path), "--case", first["id"])
    assert result.exit_code == 0, result.output
    assert " is active on " in result.output
    assert "case 'nope' does not exist" in one_sentence(run("explain", "--from", str(path), "--case", "nope"))


def test_recorded_situations_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    made = run("backtest", "generate", "--out", str(path), "--count", "3", "--tasks", "8", "--clients", "2")
    assert made.exit_code == 0, made.output
    asked = ["explain", "0_1", "--from", str(path)]
    result = run(*asked, "--case", "3")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("0_1 is active on ")
    decided_by_us = assignor_name(HighAvailabilityAssignor)
    assert decided_by_us in path.read_text()
    path.write_text(path.read_text().replace(decided_by_us, "shop.placing:ByShop"))
    assert "ByShop gives no explanations" in one_sentence(run(*asked))
    assert run(*asked, "--assignor", "high_availability").exit_code == 0
    assert "use the number of a rebalance, from 1 to 3" in one_sentence(run(*asked, "--case", "4"))


def test_records_of_an_events_topic_are_explained(tmp_path: Path) -> None:
    folder = ROOT / "tests" / "golden" / "events" / "v1"
    records = "".join(file.read_text().strip() + "\n" for file in sorted(folder.glob("*.json")))
    path = tmp_path / "events.jsonl"
    path.write_text(records.replace("billing__1", "1"))
    result = run("explain", "--from", str(path), "--assignor", "high_availability")
    assert result.exit_code == 0, result.output
    assert "0_0 is active on " in result.output
    path.write_text('{"v": 1, "kind": "sample"}\n')
    assert "no complete rebalance" in one_sentence(run("explain", "--from", str(path)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[]", "group.json: "),
        ("{}", "'tasks' is missing"),
        ('{"tasks": {"0": 1}, "clients": {}}', "group.json: "),
        ('{"tasks": {"0_0": "many"}, "clients": {"A": {}}}', "group.json: "),
        ('{"tasks": {}, "clients": {}, "assignor": "unknown"}', "unknown"),
        ('{"tasks": {}, "clients": {}, "assignor": 17}', "group.json: "),
        ('{"tasks": {}, "clients": {}, "configs": {"num.standby.replicas": -1}}', "num.standby.replicas"),
        (None, "does not exist"),
    ],
)
def test_description_that_is_none_is_refused_in_one_sentence(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "group.json"
    if text is not None:
        path.write_text(text)
    assert why in one_sentence(run("explain", "--from", str(path)))


@pytest.mark.parametrize(("task", "why"), [("x", "'x'"), ("7_7", "task 7_7 does not exist; tasks: 0_0, 0_1, 1_0")])
def test_task_that_is_none_is_refused_in_one_sentence(tmp_path: Path, task: str, why: str) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUP))
    assert why in one_sentence(run("explain", task, "--from", str(path)))


# -- simulate -----------------------------------------------------------------------------------


def test_simulation_reports_schedules_rebalances_faults_and_violations() -> None:
    result = run("simulate", "-n", "6", "--seed", "3", "--processes", "1")
    assert result.exit_code == 0, result.output
    assert "6 schedules, " in result.output
    assert "process joins" in result.output
    assert "no violation" in result.output
    for promise, says in PROMISES.items():
        (line,) = [line for line in result.output.splitlines() if line.split()[:1] == [promise]]
        assert line.rstrip().endswith(f"  {says}")


def test_simulation_shows_the_shortest_history_of_a_planted_bug_and_how_to_run_it_again() -> None:
    result = run("simulate", "-n", "2", "--seed", "2", "--mutant", "lose a task", "--processes", "1")
    assert result.exit_code == 1
    assert "shortest history of seed 2" in result.output
    assert "A1 (safety)" in result.output
    again = next(line for line in result.output.splitlines() if line.startswith("again: streams-py "))
    arguments = again.removeprefix("again: streams-py ").replace(' --mutant "lose a task"', "").split()
    repeated = run(*arguments, "--mutant", "lose a task")
    assert repeated.exit_code == 1
    assert "A1 (safety)" in repeated.output
    assert run(*arguments).exit_code == 0, "without the planted bug"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--assignor", "best"], "unknown assignor 'best'"),
        (["--assignor", "nowhere.to_be:Found"], "module nowhere.to_be cannot be imported"),
        (["--mutant", "bird"], "unknown planted bug 'bird'"),
        (["--replay", "1", "--keep", "0,999999"], "--keep takes numbers from 0 to"),
        (["--replay", "1", "--keep", "x"], "--keep takes numbers from 0 to"),
        (["--keep", "1"], "--keep needs --replay"),
        (["--config", "settings.ini"], "cannot read configuration file settings.ini"),
    ],
)
def test_simulation_refuses_wrong_options_in_one_sentence(arguments: list[str], why: str) -> None:
    assert why in one_sentence(run("simulate", *arguments))


def test_simulation_shows_what_the_users_assignor_raised_and_gives_it_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("moody_assignors.py").write_text(
        "from streams_py.assignment.assignors.sticky import StickyTaskAssignor\n"
        "class Mine(StickyTaskAssignor):\n"
        "    def configure(self, configs):\n"
        "        super().configure(configs)\n"
        "        raise LookupError('I was given ' + configs['app.mood'])\n"
    )
    Path("app.toml").write_text('app.mood = "a bad day"')
    arguments = ["--assignor", "moody_assignors:Mine", "--config", "app.toml", "--processes", "1", "--no-shorten"]
    result = run("simulate", "-n", "1", *arguments)
    assert result.exit_code == 1, result.output
    assert "first error of the assignor" in result.output
    assert "LookupError: I was given a bad day" in result.output
    assert "moody_assignors.py" in result.output


def test_planted_bugs_are_listed_with_the_promise_that_each_breaks() -> None:
    result = run("simulate", "--mutant", "list")
    assert result.exit_code == 0
    assert "A4   accept every commit" in result.output


def test_known_bugs_are_played_by_their_tickets() -> None:
    result = run("simulate", "--known-bugs")
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("KAFKA-9821: ")]
    assert "not repeated" in line


def test_installed_command_runs_schedules_on_several_processes() -> None:
    command = [Path(sys.executable).parent / "streams-py", "simulate", "-n", "17", "--processes", "2"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **WIDE, "COLUMNS": "200"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "17 schedules, " in done.stdout
    assert "1 schedules were run twice, under different hash seeds" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("group.json", b"[1]", "not a description of a group; streams-py explain --help shows an example"),
        ("group.json", b'{"tasks": {"0_0": 5}, "clients": {"A": {"offsets": 7}}}', "not a description of a group"),
        ("events.jsonl", b"\xbf\x00", "it is not UTF-8 text"),
        ("events.jsonl.gz", b"rubbish", "cannot be read: Not a gzipped file"),
    ],
)
def test_explain_says_what_is_wrong_with_a_file(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert why in one_sentence(run("explain", "--from", str(tmp_path / name)))
