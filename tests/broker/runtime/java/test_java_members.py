"""Java and Python members in one group: either may lead, and each continues with the other's state."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaPartition

from streams_py.runtime.tasks.record.offset_metadata import decode_offset_metadata
from tests.support.broker.kit import PYTHON, Application, Instance, text, true_counts

WORDS = 6_000


class Words:
    """The input in portions; all words fed so far must be counted."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._lines = text(WORDS)
        self._fed: list[str] = []

    def count_more(self, holder: Instance) -> None:
        """Feed a portion; everything fed so far is counted right, and ``holder`` has the counts of all."""
        portion = self._lines[len(self._fed) : len(self._fed) + 60]
        self._app.feed(portion)
        self._fed += portion
        self._app.await_caught_up()
        assert self._app.counts() == true_counts(self._fed), self._app.tails()
        self._app.until(
            lambda: holder.ask("store", stale=True) == true_counts(self._fed), f"{holder.name}'s stores to be current"
        )


@pytest.mark.smoke
@pytest.mark.parametrize("ends", ["killed", pytest.param("closed", marks=pytest.mark.weekly)])
def test_python_joins_java_and_takes_over_and_gives_back(
    application: Callable[..., Application], java: tuple[str, ...], ends: str
) -> None:
    app = application(num_standby_replicas=1)
    words = Words(app)
    stateful = {f"1_{number}" for number in range(app.partitions)}

    def end(instance: Instance) -> None:
        if ends == "killed":
            instance.kill()
        else:
            instance.close()

    def hold_everything(*instances: Instance) -> bool:
        return all((instance.running | instance.standby) >= stateful for instance in instances)

    # Java leads.
    first = app.start("java", command=java)
    app.await_shared(first)
    words.count_more(first)
    python = app.start("python")
    app.await_shared(first, python)
    app.until(lambda: hold_everything(first, python), "actives and standbys on both")
    assert python.ask("led") == 0
    words.count_more(first)
    words.count_more(python)

    # Python continues alone with the data that Java wrote, and leads when Java returns.
    end(first)
    app.await_shared(python)
    words.count_more(python)
    second = app.start("java", command=java)
    app.await_shared(python, second)
    app.until(lambda: hold_everything(python, second), "actives and standbys on both")
    led = python.ask("led")
    assert led > 0
    words.count_more(python)

    # Java continues alone with the data that Python wrote.
    end(python)
    app.await_shared(second)
    words.count_more(second)


def test_python_that_leaves_for_good_goes_when_java_leads_and_does_not_know_what_it_asks_for(
    application: Callable[..., Application], java: tuple[str, ...]
) -> None:
    app = application(num_standby_replicas=1)
    words = Words(app)
    leader = app.start("java", command=java)
    app.await_shared(leader)
    python = app.start("python")
    app.await_shared(leader, python)
    words.count_more(python)
    assert python.ask("led") == 0
    assert python.ask("close", leave=True, timeout=6)
    assert "not drained after" in python.log_text
    app.await_shared(leader)
    words.count_more(leader)


@pytest.mark.parametrize("guarantee", ["at_least_once", pytest.param("exactly_once_v2", marks=pytest.mark.weekly)])
def test_java_and_python_count_on_one_after_the_other_in_one_state_directory(
    application: Callable[..., Application], java: tuple[str, ...], guarantee: str
) -> None:
    """A user who returns to Java starts it where Python ran. Neither may use the other's files."""
    app = application(processing_guarantee=guarantee, partitions=2)
    words = Words(app)
    for turn in range(2):
        for name, command in (("java", java), ("python", PYTHON)):
            member = app.start(f"{name}-{turn}", command=command, config={"state.dir": str(app.folder / "shared")})
            app.await_shared(member)
            words.count_more(member)
            member.close()


@pytest.mark.weekly
@pytest.mark.timeout(900)
def test_rolling_migration_to_python_and_back_counts_every_word_once_under_exactly_once(
    application: Callable[..., Application], java: tuple[str, ...]
) -> None:
    """Two members are replaced one by one, while words stream in; one is killed. Every count of every word comes out
    once, in order, and what each commits the others can read, stream time included."""
    app = application(
        processing_guarantee="exactly_once_v2",
        num_standby_replicas=1,
        statestore_cache_max_bytes=0,
        commit_interval_ms=100,
    )
    lines, fed = text(WORDS, vocabulary=50), 0

    def feed_more() -> None:
        nonlocal fed
        app.feed(lines[fed : fed + 30])
        fed += 30

    def replace(old: Instance, name: str, command: Sequence[str], *, kill: bool = False) -> Instance:
        feed_more()
        if kill:
            old.kill()
        else:
            old.close()
        feed_more()
        return app.start(name, command=command)

    one, two = app.start("java-1", command=java), app.start("java-2", command=java)
    app.await_shared(one, two)
    one = replace(one, "python-1", PYTHON)
    app.await_shared(one, two)
    two = replace(two, "python-2", PYTHON, kill=True)
    app.await_shared(one, two)
    app.await_caught_up()
    assert_times_are_known(app)
    one = replace(one, "java-3", java)
    app.await_shared(one, two)
    two = replace(two, "java-4", java, kill=True)
    app.await_shared(one, two)
    feed_more()
    app.await_caught_up()
    app.until(lambda: one.state == two.state == "RUNNING", "both to run")
    expected = true_counts(lines[:fed])
    for topic in (app.output, f"{app.id}-counts-changelog"):
        counted: dict[str, list[int]] = {}
        for record in app.read(topic):
            counted.setdefault((record.key() or b"").decode(), []).append(int.from_bytes(record.value() or b"", "big"))
        assert counted == {word: list(range(1, count + 1)) for word, count in expected.items()}, topic
    assert_times_are_known(app)


def assert_times_are_known(app: Application) -> None:
    """Java decodes the metadata of committed offsets strictly; if it cannot decode them, stream time is lost."""
    consumer: Any = KafkaConsumer(
        bootstrap_servers=app.broker.bootstrap.split(","), group_id=app.id, isolation_level="read_committed"
    )
    try:
        for number in range(app.partitions):
            text_beside = consumer.committed(KafkaPartition(app.input, number), metadata=True).metadata
            assert base64.b64encode(base64.b64decode(text_beside, validate=True)).decode() == text_beside
            assert decode_offset_metadata(text_beside).partition_time_ms > 0
    finally:
        consumer.close()
