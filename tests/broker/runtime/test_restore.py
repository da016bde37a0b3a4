"""State that was deleted, moved, or damaged is restored from the changelog, and only the missing part of it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import SnapshotError
from streams_py.state.directory.checkpoint import CHECKPOINT_FILE
from streams_py.state.snapshots.manifest import Manifest
from tests.support.broker.kit import Application, Instance, text, true_counts

pytestmark = pytest.mark.broker

WORDS = 20_000
WEEKLY = pytest.mark.weekly
KINDS = ["rocksdb", pytest.param("in_memory", marks=WEEKLY)]


def stored(*instances: Instance) -> dict[str, int]:
    """The contents of the stores of all active tasks."""
    return {word: count for instance in instances for word, count in instance.ask("store").items()}


def check_counts(app: Application, lines: list[str], *instances: Instance) -> None:
    """Output topic, stores and truth agree."""
    app.await_caught_up()
    assert app.counts() == true_counts(lines) == stored(*instances)


def from_beginning(instance: Instance) -> list[dict[str, Any]]:
    """Restorations that started at the first record and replayed something."""
    return [seen for seen in instance.ask("restored") if seen["start"] == 0 and seen["total"]]


def snapshots_of(app: Application, folder: Path) -> dict[int, int]:
    """Where the newest whole snapshot of each stateful task is, by partition."""
    found: dict[int, int] = {}
    for number in range(app.partitions):
        for file in sorted((folder / "snapshots" / app.id / f"1_{number}" / "manifests").glob("*.json")):
            with contextlib.suppress(SnapshotError):  # a killed process may have left half of one
                for position in Manifest.decode(file.read_bytes()).positions.values():
                    found[number] = position
    return found


def counted(app: Application, lines: list[str], name: str = "a") -> Instance:
    """An instance that has counted these lines."""
    instance = app.start(name)
    app.await_shared(instance)
    app.feed(lines)
    app.await_caught_up()
    return instance


@pytest.mark.parametrize("kind", KINDS)
def test_counts_continue_from_the_changelog_when_the_state_directory_was_deleted(
    application: Callable[..., Application], kind: str
) -> None:
    app = application(dsl_store_suppliers_class=kind)
    lines = text(WORDS)
    assert counted(app, lines[:500]).close() == 0
    shutil.rmtree(app.folder / "a", ignore_errors=True)
    a = counted(app, lines[500:])
    assert len(from_beginning(a)) == app.partitions
    check_counts(app, lines, a)


def test_state_is_restored_when_its_store_is_declared_otherwise_and_kept_for_the_former_program(
    application: Callable[..., Application],
) -> None:
    app = application()
    lines = text(WORDS)
    assert counted(app, lines[:300]).close() == 0
    a = app.start("a", ttl_ms=86_400_000)
    app.await_shared(a)
    app.feed(lines[300:600])
    check_counts(app, lines[:600], a)
    assert len(from_beginning(a)) == app.partitions
    assert a.close() == 0
    state = app.folder / "a" / app.id
    for number in range(app.partitions):
        kept = state / "of-another-layout" / f"1_{number}"
        assert a.log_text.count(f"is kept in {kept};") == 1
        shutil.rmtree(state / f"1_{number}")
        kept.rename(state / f"1_{number}")
    a = counted(app, lines[600:])
    assert not from_beginning(a)
    check_counts(app, lines, a)


def test_nothing_is_replayed_when_an_instance_comes_back_to_its_own_state(
    application: Callable[..., Application],
) -> None:
    app = application()
    lines = text(WORDS)
    assert counted(app, lines[:500]).close() == 0
    a = counted(app, lines[500:])
    seen = a.ask("restored")
    assert len(seen) == app.partitions
    assert all(one["start"] == one["end"] > 0 and one["total"] == 0 for one in seen)
    check_counts(app, lines, a)


@pytest.mark.parametrize("kind", KINDS)
def test_state_moves_to_another_member_when_the_first_one_leaves(
    application: Callable[..., Application], kind: str
) -> None:
    app = application(dsl_store_suppliers_class=kind)
    lines = text(WORDS)
    a = counted(app, lines[:500])
    assert a.ask("close", leave=True, timeout=60)
    b = counted(app, lines[500:], "b")
    assert len(from_beginning(b)) == app.partitions
    check_counts(app, lines, b)


@pytest.mark.parametrize("kind", KINDS)
def test_standby_takes_over_without_replaying_everything_when_the_active_is_killed(
    application: Callable[..., Application], kind: str
) -> None:
    app = application(dsl_store_suppliers_class=kind, num_standby_replicas=1)
    lines = text(WORDS)
    a, b = app.start("a"), app.start("b")
    app.await_shared(a, b)
    app.feed(lines[:500])
    app.await_caught_up()
    stateful = {f"1_{number}" for number in range(app.partitions)}
    app.until(lambda: (b.standby | b.running) >= stateful, "b to hold every stateful task in one role or the other")
    on_a = a.running & stateful
    app.until(lambda: set(b.ask("store", stale=True)) == set(true_counts(lines[:500])), "b's standbys to be current")
    before = len(b.ask("restored"))
    a.kill()
    app.feed(lines[500:])
    app.await_shared(b)
    taken_over = b.ask("restored")[before:]
    assert {f"1_{one['partition']}" for one in taken_over} == on_a
    assert all(one["start"] > 0 and one["total"] <= one["end"] - one["start"] for one in taken_over)
    assert sum(one["total"] for one in taken_over) < 100, taken_over
    check_counts(app, lines, b)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", pytest.param("at_least_once", marks=WEEKLY)])
def test_empty_disk_is_filled_from_a_snapshot_and_only_the_rest_is_replayed(
    application: Callable[..., Application], tmp_path: Path, guarantee: str
) -> None:
    app = application(
        partitions=2,
        processing_guarantee=guarantee,
        state_snapshot_store=(tmp_path / "snapshots").as_uri(),
        state_snapshot_interval_ms=1_000,
    )

    lines = text(WORDS)
    a = counted(app, lines[:500])
    app.until(lambda: len(snapshots_of(app, tmp_path)) == app.partitions, "a snapshot of each task")
    app.feed(lines[500:600])
    app.await_caught_up()
    a.kill()
    shutil.rmtree(app.folder / "a")
    known = snapshots_of(app, tmp_path)
    a = counted(app, lines[600:])
    restored = {one["partition"]: one["start"] for one in a.ask("restored")}
    assert restored == {number: position + 1 for number, position in known.items()}
    check_counts(app, lines, a)


@pytest.mark.parametrize("stands_still", [True, False])
def test_snapshot_older_than_its_changelog_keeps_deletions_is_used_if_nothing_came_since_but_a_marker(
    application: Callable[..., Application], tmp_path: Path, stands_still: bool
) -> None:
    app = application(
        partitions=2,
        processing_guarantee="exactly_once_v2",
        state_snapshot_store=(tmp_path / "snapshots").as_uri(),
        state_snapshot_interval_ms=1_000,
        topic_delete_retention_ms=1_000,
    )
    changelogs = [TopicPartition(f"{app.id}-counts-changelog", number) for number in range(app.partitions)]

    def are_at_the_end() -> bool:
        ends, known = app.admin.list_offsets(changelogs), snapshots_of(app, tmp_path)
        return all(ends[log] == known.get(log.partition, -1) + 2 for log in changelogs)

    lines = text(WORDS)
    a = counted(app, lines[:500])
    app.until(are_at_the_end, "snapshots with everything, behind which one marker is")
    known = snapshots_of(app, tmp_path)
    if not stands_still:
        shutil.copytree(tmp_path / "snapshots", tmp_path / "kept")
        app.feed(lines[500:600])
        app.await_caught_up()
    a.kill()
    shutil.rmtree(app.folder / "a")
    if not stands_still:
        shutil.rmtree(tmp_path / "snapshots")
        (tmp_path / "kept").rename(tmp_path / "snapshots")
    a = counted(app, lines[500 if stands_still else 600 :])
    starts = {one["partition"]: one["start"] for one in a.ask("restored")}
    assert starts == {number: position + 1 if stands_still else 0 for number, position in known.items()}
    check_counts(app, lines, a)


def test_damaged_checkpoint_files_do_no_harm(application: Callable[..., Application]) -> None:
    app = application(partitions=2)
    lines = text(WORDS)
    assert counted(app, lines[:500]).close() == 0
    for number in range(app.partitions):
        checkpoint = app.folder / "a" / app.id / f"1_{number}" / CHECKPOINT_FILE
        assert checkpoint.exists()
        checkpoint.write_text("garbage\n")
    a = counted(app, lines[500:])
    assert from_beginning(a) == []
    check_counts(app, lines, a)


def test_store_equals_its_changelog_when_the_process_was_killed_in_the_middle_of_counting(
    application: Callable[..., Application],
) -> None:
    app = application(commit_interval_ms=100)
    lines = text(200_000)
    a = app.start("a")
    app.await_shared(a)
    app.feed(lines[:100_000])
    app.until(lambda: sum(app.counts().values()) > 20_000, "counting to be under way")
    app.feed(lines[100_000:])
    a.kill()
    a = app.start("a")
    app.await_shared(a)
    app.await_caught_up()
    expected, found = true_counts(lines), app.counts()
    assert all(found[word] >= count for word, count in expected.items())
    assert stored(a) == found  # the output is what the store said last, so a store behind its changelog would differ


def test_state_of_a_changelog_that_was_recreated_meanwhile_is_not_used(application: Callable[..., Application]) -> None:
    app = application(partitions=1, statestore_cache_max_bytes=0, recreated_internal_topics="continue")
    changelog = f"{app.id}-counts-changelog"
    lines = text(1_000)
    assert counted(app, lines[:10]).close() == 0
    groups = app.clients.group_admin()
    groups.delete_topics([changelog])
    groups.close()
    app.until(lambda: changelog not in app.admin.describe_topics(None), "the changelog to be gone")
    b = counted(app, lines[10:], "b")  # and it has grown past the position of a
    assert stored(b) == true_counts(lines[10:])
    assert b.close() == 0
    a = app.start("a")
    app.await_shared(a)
    assert stored(a) == app.counts(changelog) == true_counts(lines[10:])
    assert f"topic {changelog} was deleted and created again since store counts was restored from it" in a.log_text
    assert a.close() == 0
