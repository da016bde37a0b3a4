"""A large restoration, which another process has a part in: the store has what the changelog says, whatever happens to
that process."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from streams_py import KafkaStreams, State, StreamsBuilder
from streams_py.clients.sorter_process import SorterProcess
from streams_py.ports import ChangelogPart, SortedPart
from streams_py.runtime.restore import parallel_restore
from streams_py.serdes import STRING
from streams_py.testing.broker import Broker
from tests.support.broker.kit import Application
from tests.support.waiting import until

pytestmark = pytest.mark.broker

RECORDS = 60_000
_numbers = itertools.count()


class Seen:
    """What other processes were given, and what came of it."""

    def __init__(self) -> None:
        self.begun: list[ChangelogPart] = []
        self.read: list[SortedPart] = []
        self.kills = False


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Restorations of a few thousand records are shared."""
    found = Seen()
    monkeypatch.setattr(parallel_restore, "_SHARED_MIN", 10_000)
    monkeypatch.setattr(parallel_restore, "_PART_MIN", 1_000)
    begin, outcome = SorterProcess.begin, SorterProcess.outcome

    def begun(self: SorterProcess, part: ChangelogPart) -> None:
        found.begun.append(part)
        if found.kills:
            os.kill(self.pid, signal.SIGKILL)
        begin(self, part)

    def read(self: SorterProcess) -> SortedPart | None:
        part = outcome(self)
        if part is not None:
            found.read.append(part)
        return part

    monkeypatch.setattr(SorterProcess, "begin", begun)
    monkeypatch.setattr(SorterProcess, "outcome", read)
    return found


def filled(broker: Broker, app: str, *, transactions: bool) -> Mapping[str, str]:
    """A changelog whose keys are written again and again, and removed; in transactions, every third is aborted."""
    changelog = f"{app}-names-changelog"
    broker.create_topic(changelog, 1)
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 20}
    producer = confluent_kafka.Producer(settings | ({"transactional.id": changelog} if transactions else {}))
    draw, alive = random.Random(app), {}
    if transactions:
        producer.init_transactions(60)
    for start in range(0, RECORDS, 5_000):
        is_aborted = transactions and start % 15_000 == 5_000
        if transactions:
            producer.begin_transaction()
        for offset in range(start, start + 5_000):
            key, value = f"k{draw.randrange(RECORDS // 4)}", None if draw.randrange(6) == 0 else f"v{offset}"
            producer.produce(changelog, value, key)
            if is_aborted:
                continue
            if value is None:
                alive.pop(key, None)
            else:
                alive[key] = value
        producer.flush(60)
        if is_aborted:
            producer.abort_transaction(60)
        elif transactions:
            producer.commit_transaction(60)
    producer.close()
    return alive


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("kills", [False, True], ids=["", "killed"])
def test_store_is_that_of_its_changelog(
    kafka_broker: Broker, tmp_path: Path, seen: Seen, guarantee: str, kills: bool
) -> None:
    seen.kills = kills
    app = f"sharing-{os.getpid()}-{next(_numbers)}"
    kafka_broker.create_topic(app, 1)
    expected = filled(kafka_broker, app, transactions=guarantee == "exactly_once_v2")
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.table(app, store="names")
    config: dict[str, Any] = {
        "application.id": app,
        "bootstrap.servers": kafka_broker.bootstrap,
        "state.dir": str(tmp_path),
        "processing.guarantee": guarantee,
    }
    with KafkaStreams(builder.build(), config) as streams:
        assert streams.wait_until(State.RUNNING, 120)
        found = {key: value[0] if isinstance(value, tuple) else value for key, value in streams.store("names").all()}
    assert found == expected
    assert seen.begun
    assert bool(seen.read) is not kills
    assert not list(tmp_path.rglob("sorted/*"))


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_member_that_is_killed_while_it_restores_with_another_process_continues_when_it_is_started_again(
    application: Callable[..., Application], guarantee: str
) -> None:
    app = application(partitions=1, processing_guarantee=guarantee)
    changelog = f"{app.id}-counts-changelog"
    app.broker.create_topic(changelog, 1)
    draw, expected = random.Random(guarantee), {}
    producer = confluent_kafka.Producer({"bootstrap.servers": app.broker.bootstrap, "linger.ms": 20})
    for number in range(200_000):
        word, count = f"w{draw.randrange(50_000)}", None if draw.randrange(6) == 0 else number
        producer.produce(changelog, None if count is None else count.to_bytes(8), word)
        if number % 10_000 == 9_999:
            producer.flush(60)
        if count is None:
            expected.pop(word, None)
        else:
            expected[word] = count
    producer.flush(60)
    producer.close()
    for when in ("reading", "in files", "without a position"):
        a = app.start("a", shared_from=20_000, dies_when=when)
        assert a.wait_end() == -signal.SIGKILL
        sorters = [int(process) for process in (app.folder / "trace-sorters").read_text().split()]
        until(lambda sorters=sorters: all(map(is_gone, sorters)), "the other process to end")  # type: ignore[misc]
    a = app.start("a", shared_from=20_000)
    app.await_shared(a)
    assert a.ask("store") == expected
    assert not list((app.folder / "a").rglob("sorted/*"))
