"""``streams-py check-upgrade``, run as from a shell."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from streams_py import StreamsBuilder, Topology, UpgradeReport, check_upgrade, serdes
from streams_py.cli import connecting
from streams_py.cli.commands import app
from streams_py.cli.development import upgrades
from tests.support.inspection.groups import FakeCluster

APP = """
from streams_py import StreamsBuilder, serdes
import helper

def build():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    stream = builder.stream("in")
    if helper.FILTER:
        stream = stream.filter(lambda key, value: True)
    stream.group_by_key().count(**helper.OPTIONS)
    return builder
"""


@pytest.fixture
def versions(tmp_path: Path) -> tuple[str, str, str]:
    """Old, one that loses its store, one that keeps it: files of equal names in three folders."""
    made = []
    for folder, helper in (
        ("old", "FILTER, OPTIONS = False, {}"),
        ("lost", "FILTER, OPTIONS = True, {}"),
        ("kept", "FILTER, OPTIONS = True, dict(store='KSTREAM-AGGREGATE-STATE-STORE-0000000001')"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "application.py").write_text(APP)
        (tmp_path / folder / "helper.py").write_text(helper)
        made.append(f"{tmp_path / folder / 'application.py'}:build")
    return made[0], made[1], made[2]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check-upgrade", *arguments])
    return result.exit_code, result.output


def test_exit_status_says_whether_it_is_safe(versions: tuple[str, str, str]) -> None:
    old, lost, kept = versions
    assert run(old, kept) == (0, "SAFE\n")
    code, output = run(old, lost)
    assert code == 1
    assert 'fix: store="KSTREAM-AGGREGATE-STATE-STORE-0000000001" at ' in output
    assert "NOT SAFE" in output


def test_saved_description_stands_for_the_old_version(versions: tuple[str, str, str], tmp_path: Path) -> None:
    _, lost, kept = versions
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("in").group_by_key().count()
    saved = tmp_path / "old.txt"
    saved.write_text(builder.build().describe())
    code, output = run(str(saved), kept)
    assert code == 0
    assert "not compared: serdes" in output
    assert run(str(saved), lost)[0] == 1


def test_rolling_is_a_question_of_its_own(versions: tuple[str, str, str], tmp_path: Path) -> None:
    more = tmp_path / "more.py"
    more.write_text(
        "from streams_py import StreamsBuilder, serdes\n"
        "builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)\n"
        "builder.stream('in').group_by_key().count()\n"
        "builder.stream('new').to('out')\n"
    )
    assert run(versions[0], f"{more}:builder")[0] == run(versions[0], str(more))[0] == 0
    assert run(versions[0], f"{more}:builder", "--rolling")[0] == 1


def test_file_of_the_application_names_the_group(
    versions: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def against(
        new: Topology, bootstrap: str | None, application_id: str, config: Path | None, others: Collection[str]
    ) -> UpgradeReport:
        asked.append((bootstrap, application_id, config))
        return check_upgrade(new, new)

    monkeypatch.setattr(upgrades, "_against_cluster", against)  # no broker
    file = tmp_path / "app.properties"
    file.write_text("application.id=shop\nbootstrap.servers=broker:9092\n")
    assert run(versions[0], "--config", str(file)) == (0, "SAFE\n")
    assert run(versions[0], "--config", str(file), "-a", "other", "-b", "here:1") == (0, "SAFE\n")
    assert asked == [(None, "shop", file), ("here:1", "other", file)]


@pytest.mark.parametrize(
    ("topics", "groups", "status", "said"),
    [
        ({"in": 4}, (), 2, "shop has neither internal topics nor a group at here:1"),
        ({"in": 4}, ("shop",), 0, "everything: shop has no internal topics"),
        ({"in": 4, "shop-KSTREAM-AGGREGATE-STATE-STORE-0000000001-changelog": 4}, (), 0, "SAFE"),
        ({"in": 4, "shop-two-x-changelog": 4}, ("shop-two",), 2, "shop has neither internal topics nor a group"),
        ({"in": 4, "shop-two-x-changelog": 4}, ("shop", "shop-two"), 0, "shop has no internal topics"),
        ({"in": 4, "shop-two-x-changelog": 4}, ("shop",), 1, "its name also fits an application.id of shop-two"),
        ({"in": 4, "shop-x-changelog": 4}, ("shop", "shop-two"), 1, "topic shop-x-changelog is orphaned"),
    ],
    ids=[
        "a slip in the name",
        "an application that had no state",
        "its topics are there",
        "topics of another application alone",
        "topics of another application",
        "topics that may be another application's",
        "a topic of its own",
    ],
)
def test_group_that_nobody_knows_is_not_called_safe(
    topics: dict[str, int],
    groups: tuple[str, ...],
    status: int,
    said: str,
    versions: tuple[str, str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster(topics, {}, groups=groups)
    monkeypatch.setattr(cluster, "clients", SimpleNamespace(embedded=None), raising=False)
    monkeypatch.setattr(cluster, "bootstrap", "here:1", raising=False)
    import_module("streams_py.cli.records.topics")  # loaded now, or it would keep the fake
    monkeypatch.setattr(connecting, "connected", lambda *_: contextlib.nullcontext(cluster))
    code, output = run(versions[0], "-a", "shop", "-b", "here:1")
    assert (code, said in output) == (status, True), output


def test_application_that_is_stopped_can_be_named(
    versions: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster({"in": 4, "shop-two-x-changelog": 4}, {}, groups=("shop",))
    monkeypatch.setattr(cluster, "clients", SimpleNamespace(embedded=None), raising=False)
    import_module("streams_py.cli.records.topics")
    monkeypatch.setattr(connecting, "connected", lambda *_: contextlib.nullcontext(cluster))
    code, output = run(versions[0], "-a", "shop", "-b", "here:1", "--other-application", "shop-two")
    assert (code, "orphaned" in output) == (0, False), output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.txt", "nowhere.py:x"], "neither module:name nor a file"),
        (["nowhere.py:x", "nowhere.py:x"], "nowhere.py cannot be imported: the file does not exist"),
        (["no_such_module:x", "y:z"], "module no_such_module cannot be imported"),
        (["streams_py:KafkaStreams", "y:z"], "streams_py:KafkaStreams cannot be built"),
        (["only_one:x"], "give two versions"),
        (["a:b", "c:d", "--bootstrap", "embedded"], "with --bootstrap or --config, give only the new version"),
        (["a:b", "--bootstrap", "embedded"], "with --bootstrap or --config, give only the new version"),
        (["pyproject.toml", "pyproject.toml"], "does not belong to a topology's description"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], message: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert message in output
    assert output.count("\n") == 1
