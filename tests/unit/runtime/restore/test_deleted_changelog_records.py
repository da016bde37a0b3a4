"""Changelogs whose first records were deleted, before a restore or during it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streams_protocol.types import TopicPartition
from tests.support.runtime.fakes import FakeLog, FakeTask
from tests.support.runtime.stepped_updater import LOG, Stepped, active, standby


@pytest.mark.parametrize("kind", [active, standby])
@pytest.mark.parametrize("expires", [True, False])
def test_replay_continues_at_the_new_log_start_when_retention_overtakes_it(
    log: FakeLog, kind: Callable[..., FakeTask], expires: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log.write(LOG, 10_000)
    updater, task = Stepped(log), kind(LOG)
    task.expiring = {LOG} if expires else set()
    updater.consumer.delivers_max = 100
    updater.add(task)
    updater.turn()
    before = len(task.restored)
    assert 0 < before < 5_000
    for start in (6_000, 8_000):  # repeatedly
        log.starts[LOG] = start
        log.offsets[LOG] = [offset for offset in log.offsets[LOG] if offset >= start]
        updater.turn(2)
    updater.turn(20)
    assert updater.drain_failed() == []
    assert updater.drain_restored() == ([task] if task.is_active else [])
    offsets = [offset for _, offset in task.restored]
    assert offsets[:before] == list(range(before))
    assert offsets[-2_000:] == list(range(8_000, 10_000))
    assert len(offsets) == len(set(offsets)) < 10_000
    assert bool([r for r in caplog.records if r.levelname == "ERROR"]) is not expires


@pytest.mark.parametrize("checkpoint", [{}, {LOG: 1}])
@pytest.mark.parametrize("expires", [True, False])
def test_deleted_beginning_is_an_error_in_the_log_unless_the_store_expires(
    log: FakeLog, checkpoint: dict[TopicPartition, int], expires: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log.write(LOG, 10)
    log.starts[LOG] = 5
    log.offsets[LOG] = [5, 6, 7, 8, 9]
    updater, task = Stepped(log), active(LOG, checkpoint=checkpoint)
    task.expiring = {LOG} if expires else set()
    updater.add(task)
    updater.turn(2)
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    if expires:
        assert said == []
    else:
        needs = 2 if checkpoint else 0
        assert len(said) == 1
        assert (
            f"changelog {LOG} begins at offset 5, but store store of {LOG.topic} needs it from offset {needs}"
            in said[0]
        )
