"""``streams-py reset``: the values of ``--to``, and the effect on each topic."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.cli.groups import resetting
from streams_py.cli.groups.reset_plan import Target
from streams_py.cli.groups.resetting import reset_application
from streams_py.errors import StreamsError
from streams_py.ports.described_groups import (
    DescribedGroup,
    DescribedMember,
    DescribedStreamsGroup,
    DescribedSubtopology,
)
from streams_py.state.directory.state_directory import StateDirectory
from tests.support.resetting import FakeCluster


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target()),
        ("latest", Target(latest=True)),
        ("17", Target(offset=17)),
        ("-5", Target(shift=-5)),
        ("+5", Target(shift=5)),
        ("1970-01-01T00:00:01", Target(datetime_ms=1000)),
        ("1969-12-31T23:59:59.999", Target(datetime_ms=0)),
        ("1970-01-01T01:00:01+01:00", Target(datetime_ms=1000)),
    ],
)
def test_targets(text: str, target: Target) -> None:
    assert Target.of(text) == target


@pytest.mark.parametrize("text", ["", "first", "1.5", "--5", "2026-13-01"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(ValueError, match=r".?"):
        Target.of(text)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    fake = FakeCluster()

    @contextlib.contextmanager
    def connected(*_: object) -> Iterator[FakeCluster]:
        yield fake

    monkeypatch.setattr(resetting, "connected", connected)
    return fake


def reset(target: str = "earliest", **options: Any) -> int:
    settings: dict[str, Any] = {"inputs": (), "state_dir": None, "dry_run": False, "force": False}
    settings |= {"confirmed": lambda: True, **options}
    return reset_application("app", "b:1", None, target=Target.of(target), **settings)


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        ("earliest", 10),
        ("latest", 100),
        ("60", 60),
        ("5", 10),
        ("500", 100),
        ("-7", 43),
        ("-70", 10),
        ("+70", 100),
        ("1970-01-01T00:00:01", 42),
        ("1970-01-01T00:01:00", 100),
    ],
)
def test_positions_stay_inside_of_the_partition(cluster: FakeCluster, target: str, offset: int) -> None:
    assert reset(target) == 0
    assert cluster.done[0] == ("offsets", {TopicPartition("in", 0): offset})


def test_topics_of_an_application_whose_name_begins_alike_are_left_alone(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reset() == 0
    assert cluster.done[1] == ("topics", ["app-x-changelog", "app-y-repartition"])
    assert "keep topic app-two-x-changelog: it belongs to app-two" in capsys.readouterr().out


STOPPED = "app-two-x-changelog"


@pytest.fixture
def stopped(cluster: FakeCluster) -> FakeCluster:
    """app-two is stopped. The broker has deleted its group, but its topics still exist."""
    cluster.groups.list_groups = lambda: {"app": "classic"}
    return cluster


def test_topic_that_fits_another_application_stays_unless_the_user_names_it(
    stopped: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reset(dry_run=True) == 0
    shown = capsys.readouterr().out
    assert "delete topic app-x-changelog: no other application.id fits its name" in shown
    assert f"keep topic {STOPPED} unless you name it: its name also fits an application.id of app-two" in shown
    assert reset() == 0
    assert stopped.done[1] == ("topics", ["app-x-changelog", "app-y-repartition"])
    assert f"topic {STOPPED} was kept: if it belongs to app, " in capsys.readouterr().err
    stopped.done.clear()
    assert reset(internal=(STOPPED,)) == 0
    assert stopped.done[1] == ("topics", [STOPPED, "app-x-changelog", "app-y-repartition"])
    assert "was kept" not in capsys.readouterr().err


def test_user_is_asked_about_each_topic_that_fits_another_application(stopped: FakeCluster) -> None:
    asked: list[str] = []
    assert reset(is_own=lambda topic: asked.append(topic) or True) == 0
    assert asked == [STOPPED]
    assert STOPPED in stopped.done[1][1]


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("app-z-changelog", "topic app-z-changelog does not exist; did you mean app-x-changelog"),
        ("in", "in is not named like an internal topic of app"),
        ("app-notes", "app-notes is not named like an internal topic of app"),
    ],
)
def test_internal_topic_that_is_none_is_refused(
    stopped: FakeCluster, capsys: pytest.CaptureFixture[str], named: str, reason: str
) -> None:
    assert reset(internal=(named,)) == 2
    assert reason in capsys.readouterr().err
    assert not stopped.done


@pytest.mark.parametrize(
    ("reads", "store", "deleted"),
    [("in", "two-x", True), ("in", "x", False), (STOPPED, "y", False)],
    ids=["a store of the program", "no store of the program", "an input of the program"],
)
def test_program_tells_its_topics(stopped: FakeCluster, tmp_path: Path, reads: str, store: str, deleted: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from streams_py import StreamsBuilder, serdes\n"
        "builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)\n"
        f"builder.stream({reads!r}).group_by_key().count(store={store!r})\n"
    )
    assert reset(topology=f"{program}:builder") == 0
    assert (STOPPED in stopped.done[1][1]) is deleted


@pytest.mark.parametrize("inputs", [(), (STOPPED,)], ids=["it has committed offsets", "the user names it"])
def test_changelog_of_another_application_that_is_an_input_is_read_again(
    stopped: FakeCluster, inputs: tuple[str, ...]
) -> None:
    stopped.admin.committed_offsets = lambda group, partitions: {
        at: 50 if at.topic == STOPPED and not inputs else None for at in partitions
    }
    assert reset(inputs=inputs) == 0
    assert stopped.done[0] == ("offsets", {TopicPartition(STOPPED, 0): 10})
    assert STOPPED not in stopped.done[1][1]


def test_generated_names_tell_the_application(cluster: FakeCluster) -> None:
    name = "KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"
    topics = cluster.admin.describe_topics(None)
    cluster.groups.list_groups = dict
    cluster.admin.describe_topics = lambda names: {
        **topics,
        f"app-{name}": topics["in"],
        f"app-two-{name}": topics["in"],
    }
    assert reset() == 0
    assert f"app-{name}" in cluster.done[1][1]
    assert f"app-two-{name}" not in cluster.done[1][1]


def test_group_of_the_streams_protocol_tells_its_topics(stopped: FakeCluster) -> None:
    sub = DescribedSubtopology(0, ("in", "app-y-repartition"), ("app-y-repartition",), (STOPPED,))
    group = DescribedStreamsGroup("app", "Empty", 3, (sub,), ())

    def none_classic(group: str) -> None:
        raise StreamsError(f"group {group} does not exist")

    stopped.groups.describe_group = none_classic
    stopped.groups.describe_streams_group = lambda name: group
    assert reset() == 0
    assert STOPPED in stopped.done[1][1]


@pytest.mark.parametrize("force", [False, True])
def test_dry_run_shows_the_plan_while_members_run_and_that_a_reset_is_refused(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], force: bool
) -> None:
    member = DescribedMember("m1", None, "c", "h", b"", b"")
    group = DescribedGroup("app", "Stable", "consumer", "stream", (member,))
    cluster.groups.describe_group = lambda name: group
    assert reset(dry_run=True, force=force) == 0
    shown = capsys.readouterr().out
    assert "delete topic app-x-changelog" in shown
    refused = "without --dry-run, the reset would be refused now: app has 1 member (c at h); stop the application first"
    assert (refused in shown) is not force
    assert ("remove member c at h" in shown) is force
    assert not cluster.done
    if not force:
        assert reset() == 2
        assert "stop the application first, or remove dead members with --force" in capsys.readouterr().err
        assert not cluster.done


def test_a_dry_run_and_a_no_change_nothing(cluster: FakeCluster) -> None:
    assert reset(dry_run=True) == 0
    assert reset(confirmed=lambda: False) == 1
    assert reset(inputs=("app-x-changelog",)) == 2
    assert not cluster.done


@pytest.mark.parametrize("force", [False, True])
def test_group_whose_members_are_no_streams_application_is_refused(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], force: bool
) -> None:
    member = DescribedMember("m1", None, "c", "h", b"", b"")
    cluster.groups.describe_group = lambda group: DescribedGroup(group, "Stable", "consumer", "range", (member,))
    assert reset(force=force) == 2
    assert (
        "app is not a Kafka Streams group: its members use the protocol range of type consumer"
        in capsys.readouterr().err
    )
    assert not cluster.done


@pytest.mark.parametrize(
    ("visible", "said"),
    [(("app-x-changelog",), "no committed offsets are visible"), (("in",), "no internal topics are visible")],
    ids=["inputs are hidden", "internal topics are hidden"],
)
def test_what_a_plan_lacks_is_said_since_a_missing_right_hides_topics(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], visible: tuple[str, ...], said: str
) -> None:
    describe = cluster.admin.describe_topics
    cluster.admin.describe_topics = lambda names: {
        topic: found for topic, found in describe(names).items() if topic in visible
    }
    assert reset(dry_run=True) == 0
    shown = capsys.readouterr().out
    assert f"{said}: none exist, or this user lacks DESCRIBE" in shown
    assert shown.count("are visible") == 1


def test_local_state_goes_last_and_what_is_in_use_stays(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = StateDirectory(str(tmp_path), "app")
    running.open()
    (tmp_path / "app" / "0_0").mkdir()
    assert reset(state_dir=str(tmp_path)) == 0
    assert f"the state in {tmp_path / 'app'} was kept: a running process uses it" in capsys.readouterr().out
    assert (tmp_path / "app" / "0_0").is_dir()
    running.close()
    assert reset(state_dir=str(tmp_path)) == 0
    assert not (tmp_path / "app" / "0_0").exists()
    assert reset(state_dir=str(tmp_path / "nowhere"), dry_run=True) == 0
    assert f"delete the local state of app in {tmp_path / 'nowhere'}: no state found" in capsys.readouterr().out


def test_name_that_can_have_no_state_is_refused_before_anything_is_done(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"inputs": ("in",), "target": Target(), "dry_run": False, "force": False}
    status = reset_application("a/b", "b:1", None, state_dir=str(tmp_path), confirmed=lambda: True, **options)
    assert status == 2
    assert "'a/b' is not a valid name for a directory" in capsys.readouterr().err
    assert not cluster.done


def test_names_that_others_chose_give_a_terminal_no_orders(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "app-\x1b[2Jtwo"
    topics = cluster.admin.describe_topics(None)
    cluster.admin.describe_topics = lambda names: {**topics, f"{evil}-x-changelog": topics["in"]}
    member = DescribedMember("m", None, evil, "h\x1b[2J", b"", b"")
    cluster.groups.list_groups = lambda: {"app": "classic", evil: "classic"}
    cluster.groups.describe_group = lambda group: DescribedGroup(group, "Stable", "consumer", "stream", (member,))
    assert reset(dry_run=True, force=True) == 0
    assert reset() == 2
    said = capsys.readouterr()
    assert "app-\\x1b[2Jtwo" in said.out
    assert "app-\\x1b[2Jtwo" in said.err
    assert "\x1b" not in said.out + said.err


@pytest.mark.parametrize("force", [False, True])
def test_application_of_the_streams_protocol_is_reset_when_it_has_no_members(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], force: bool
) -> None:
    def none_classic(group: str) -> None:
        raise StreamsError(f"group {group} does not exist")

    member = SimpleNamespace(client_id="c", client_host="h")
    group = DescribedStreamsGroup("app", "Stable", 3, (), (member,))  # type: ignore[arg-type]
    cluster.groups.describe_group = none_classic
    cluster.groups.describe_streams_group = lambda name: group
    assert reset(force=force) == 2
    sentence = "app has 1 member (c at h); stop the application first: --force cannot remove members of the streams"
    assert sentence in capsys.readouterr().err
    assert not cluster.done
    cluster.groups.describe_streams_group = lambda name: group._replace(members=())
    assert reset(force=force) == 0
    assert [what for what, _ in cluster.done] == ["offsets", "topics"]
