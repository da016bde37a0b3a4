"""Snapshots that are too old for later tombstones, and snapshots without positions."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fsspec")

from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, LockError
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo
from streams_py.runtime.wiring.snapshots import open_snapshots
from streams_py.state.snapshots import snapshots
from streams_py.state.snapshots.manifest import Manifest
from streams_py.state.snapshots.snapshots import ChangelogNow
from streams_py.state.snapshots.storage import open_storage
from tests.support.state.snapshots import CHANGELOG, HOUR_MS, TASK, Machine
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Makes machines with an empty disk."""
    numbers = iter(range(100))
    return lambda **options: Machine(tmp_path / f"machine-{next(numbers)}", **options)


def test_snapshot_older_than_its_changelog_keeps_deletions_is_refused(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture
) -> None:
    """Compaction may have removed the record that deletes a key which is in the snapshot."""
    machine().at(100).open().restore(0, 9).upload().close()
    assert machine().at(121.5).open().position == 10
    assert caplog.text == ""
    two = machine().at(122).open()
    assert two.position < 0
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.endswith(
        ": it is 22.0 h old, and topic app-names-changelog keeps tombstones for 24.0 h (delete.retention.ms), of which "
        "a tenth is reserved for replaying: keys that were deleted since could reappear"
    )
    two.restore(0, 19).upload().close()
    assert machine().at(123).open().position == 20
    three = machine().at(123)
    three.bounds[CHANGELOG] = ChangelogNow(0, 1 << 40, None, HOUR_MS)
    assert three.open().position < 0
    three.close()


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(ChangelogNow(0, 10), id="nothing came since"),
        pytest.param(ChangelogNow(0, 1 << 40, None, None), id="not compacted"),
        pytest.param(ChangelogNow(0, 1 << 40, None, 5_000 * HOUR_MS), id="deletions are kept"),
    ],
)
def test_old_snapshot_is_used_when_no_deletion_can_be_missing(
    machine: Callable[..., Machine], now: ChangelogNow
) -> None:
    machine().at(0).open().restore(0, 9).upload().close()
    two = machine().at(2_000)
    two.bounds[CHANGELOG] = now
    assert two.open().position == 10
    two.close()


@pytest.mark.parametrize(
    ("options", "end", "position"),
    [
        pytest.param({"transactional": True}, 11, 10, id="a marker"),
        pytest.param({"transactional": True}, 12, -2, id="perhaps a record and its marker"),
        pytest.param({}, 11, -2, id="a record"),
        pytest.param({"transactional": True, "source_topic": CHANGELOG.topic}, 11, -2, id="a record of others"),
    ],
)
def test_marker_that_ends_a_transaction_makes_no_snapshot_old(
    machine: Callable[..., Machine], options: dict[str, Any], end: int, position: int
) -> None:
    """A task may stand still for longer than deletions are kept: nothing can be missing in its snapshot."""
    machine(**options).at(0).open().restore(0, 9).upload().close()
    two = machine(**options).at(30)
    two.bounds[CHANGELOG] = ChangelogNow(0, end)
    assert two.open().position == position
    two.close()


@pytest.mark.parametrize(("before", "now"), [(True, False), (False, True)])
def test_single_record_since_may_be_a_deletion_when_the_guarantee_was_another(
    machine: Callable[..., Machine], before: bool, now: bool
) -> None:
    machine(transactional=before).at(0).open().restore(0, 9).upload().close()
    two = machine(transactional=now).at(30)
    two.bounds[CHANGELOG] = ChangelogNow(0, 11)
    assert two.open().position < 0
    two.close()


@pytest.mark.parametrize(("kept_ms", "position"), [(24 * HOUR_MS, 10), (2 * HOUR_MS, -2)])
def test_snapshot_waits_until_the_cluster_says_how_old_it_may_be(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch, kept_ms: int, position: int
) -> None:
    """It waits without limit: no later check detects the age, and without the cluster nothing can be restored."""
    machine().at(0).open().restore(0, 9).upload().close()
    two = machine().at(5)
    answers = threading.Event()
    asked = threading.Semaphore(0)

    def offsets(_: object) -> Any:
        asked.release()
        if not answers.is_set():
            raise BrokerUnavailableError("away")
        return {CHANGELOG: ChangelogNow(0, 1 << 40, None, kept_ms)}

    two.offsets = offsets
    monkeypatch.setattr(snapshots, "_ASK_AGAIN_S", 0.001)
    for _ in range(200):
        with pytest.raises(LockError, match="waits for its snapshot"):
            two.at(two.hour + 2_000 / HOUR_MS).state.open()
        assert asked.acquire(timeout=PATIENCE_S)
    answers.set()
    assert two.open().position == position
    two.close()


def test_download_ends_when_the_client_closes_although_the_cluster_does_not_answer(
    machine: Callable[..., Machine],
) -> None:
    def away(_: object) -> Any:
        raise BrokerUnavailableError("away")

    machine().at(0).open().restore(0, 9).upload().close()
    two = machine().at(5)
    two.offsets = away
    with pytest.raises(LockError):
        two.state.open()
    fetch = two.snapshots._fetches[TASK]  # to wait for its end
    two.snapshots.stop()
    assert fetch.done.wait(PATIENCE_S)
    assert fetch.result is None


@pytest.mark.parametrize("kind", [AdminErrorKind.TIMED_OUT, AdminErrorKind.LEADER_NOT_AVAILABLE])
@pytest.mark.parametrize("what", ["describe_topics", "list_offsets", "delete_retention_ms"])
def test_changelog_of_which_a_part_is_not_known_now_is_asked_for_again(
    tmp_path: Path, what: str, kind: AdminErrorKind
) -> None:
    admin: Any = SimpleNamespace(
        describe_topics=lambda topics: {name: (PartitionInfo(name, 1, 1, (1,), frozenset(), "id"),) for name in topics},
        list_offsets=lambda changelogs, earliest=False: dict.fromkeys(changelogs, 0 if earliest else 9),
        delete_retention_ms=lambda topics: dict.fromkeys(topics, 5),
        cluster_id=lambda: "c",
    )
    setattr(admin, what, lambda asked, **_: dict.fromkeys(asked, AdminError(kind, "not now")))
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "broker:9092"})
    made = open_snapshots(open_storage(tmp_path.as_uri()), config, admin)
    assert made is not None
    with pytest.raises(BrokerUnavailableError, match="not now"):
        made._offsets([CHANGELOG])  # the thread that asks would wait and ask again
    made.stop()


@pytest.mark.parametrize(
    ("said", "kept_ms"),
    [(5, 5), (None, None), (AdminError(AdminErrorKind.NOT_ALLOWED, "no right DESCRIBE_CONFIGS"), 24 * HOUR_MS)],
    ids=str,
)
def test_deletions_are_kept_as_long_as_the_topic_says_or_as_kafkas_default_if_nobody_may_ask(
    tmp_path: Path, said: Any, kept_ms: int | None
) -> None:
    admin: Any = SimpleNamespace(
        describe_topics=lambda topics: {name: (PartitionInfo(name, 1, 1, (1,), frozenset(), "id"),) for name in topics},
        list_offsets=lambda changelogs, earliest=False: dict.fromkeys(changelogs, 0 if earliest else 9),
        delete_retention_ms=lambda topics: dict.fromkeys(topics, said),
        cluster_id=lambda: "c",
    )
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "broker:9092"})
    made = open_snapshots(open_storage(tmp_path.as_uri()), config, admin)
    assert made is not None
    # The thread that asks keeps the answer for itself.
    assert made._offsets([CHANGELOG]) == {CHANGELOG: ChangelogNow(0, 9, "id", kept_ms)}
    made.stop()


def test_what_was_fetched_for_a_task_that_went_away_is_not_used_when_it_comes_back_much_later(
    machine: Callable[..., Machine],
) -> None:
    one = machine().at(0).open().restore(0, 9).upload()
    two = machine().at(0)
    with pytest.raises(LockError):
        two.state.open()
    fetch = two.snapshots._fetches[TASK]  # to wait for its end
    assert fetch.done.wait(PATIENCE_S)
    one.restore(10, 19).at(30).upload().close()
    assert two.at(30).open().position == 20
    two.close()


def test_snapshot_of_an_older_version_is_as_old_as_its_name_says(machine: Callable[..., Machine]) -> None:
    one = machine().open().restore(0, 9).upload()
    one.close()
    (path,) = one.manifests()
    whole = Manifest.decode(path.read_bytes())
    content = json.loads(replace(whole, taken_ms=None).encode())["snapshot"]
    del content["taken_ms"]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.with_name(f"{10 * HOUR_MS:015d}-1.json").write_text(json.dumps({"sha256": digest, "snapshot": content}))
    path.unlink()
    assert machine().at(30).open().position == 10
    assert machine().at(34).open().position < 0


@pytest.mark.parametrize(("interval_s", "taken_hour"), [(600, 5), (86_400, 35)])
def test_process_that_was_frozen_does_not_call_its_snapshot_new(
    machine: Callable[..., Machine], interval_s: float, taken_hour: int
) -> None:
    """When it continues, it does not know yet that other members own its tasks. Ten minutes later it does."""
    one = machine().at(5).open().restore(0, 9)
    waits: list[float] = []

    def frozen(timeout: float) -> bool:
        waits.append(timeout)
        if timeout:
            one.at(one.hour + 30)
        return len(waits) > 2

    # Instead of the thread, which waits for real.
    one.snapshots._stop = SimpleNamespace(wait=frozen, is_set=lambda: False)  # type: ignore[assignment]
    one.snapshots._run(interval_s)  # see above
    (path,) = one.manifests()
    assert Manifest.decode(path.read_bytes()).taken_ms == taken_hour * HOUR_MS
    assert waits[:2] == [interval_s - 600, 600]
    one.close()


def test_state_without_positions_is_not_uploaded_and_not_used(
    machine: Callable[..., Machine], caplog: pytest.LogCaptureFixture
) -> None:
    one = machine().open()
    assert one.snapshots.upload_all() == 0
    assert not one.place.exists()
    one.restore(0, 9).upload().close()
    (path,) = one.manifests()
    empty = replace(Manifest.decode(path.read_bytes()), positions={})
    path.with_name("999999999999999-1.json").write_bytes(empty.encode())
    two = machine().open()
    assert two.position == 10
    assert "it has no changelog positions, so everything would be replayed anyway" in caplog.text
    two.close()
