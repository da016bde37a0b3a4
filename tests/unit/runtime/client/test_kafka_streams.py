"""The client: its states and listeners, threads that are added and removed, directories."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError, IllegalStateError, StateError, StreamsError, StreamsNotStartedError
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.runtime.group.transport import Leave
from streams_py.runtime.thread.states import State, ThreadState
from streams_py.runtime.wiring import shared
from streams_py.state.directory.state_directory import StateDirectory
from tests.support.runtime.fake_threads import Client
from tests.support.runtime.world import WorldAdmin, copying, task
from tests.support.waiting import PATIENCE_S

# -- states ------------------------------------------------------------------------------------------------------


def test_client_runs_when_all_its_threads_do_and_rebalances_with_any_of_them(client: Client) -> None:
    first, second = client.start()
    first.run()
    assert client.streams.state is State.REBALANCING
    second.run()
    assert client.streams.state is State.RUNNING
    first.go(ThreadState.PARTITIONS_REVOKED)
    second.go(ThreadState.PARTITIONS_ASSIGNED, ThreadState.RUNNING)
    assert client.streams.state is State.REBALANCING
    first.run()
    assert client.path == "CREATED REBALANCING RUNNING REBALANCING RUNNING"
    assert all(old == before for (old, _), (_, before) in zip(client.heard[1:], client.heard, strict=False))


def test_client_runs_on_with_the_threads_that_are_left(client: Client) -> None:
    first, second = client.start()
    first.run()
    second.run()
    first.end()
    second.go(ThreadState.PARTITIONS_ASSIGNED, ThreadState.RUNNING)
    assert client.streams.state is State.RUNNING


def test_client_runs_when_the_only_thread_that_did_not_is_removed(client: Client) -> None:
    first, second = client.start()
    first.run()
    assert client.streams.state is State.REBALANCING
    second.end()
    assert client.streams.state is State.RUNNING


def test_closing_ends_when_the_last_thread_has_ended(client: Client) -> None:
    first, second = client.start()
    assert client.streams.close(0) is False
    assert client.streams.state is State.PENDING_SHUTDOWN
    first.end()
    assert client.streams.state is State.PENDING_SHUTDOWN
    assert "clients closed" not in client.world.names()
    second.end()
    assert client.streams.close(0) is True
    assert client.path == "CREATED REBALANCING PENDING_SHUTDOWN NOT_RUNNING"
    assert client.world.names() == ["clients closed"]
    assert client.streams.wait(0) is True


def test_closing_before_the_start_ends_immediately(client: Client) -> None:
    assert client.streams.close() is True
    assert client.path == "CREATED PENDING_SHUTDOWN NOT_RUNNING"
    with pytest.raises(IllegalStateError, match="create a new one"):
        client.streams.start()


@pytest.mark.parametrize("timeout", [-1, -0.001])
def test_negative_timeout_is_refused(client: Client, timeout: float) -> None:
    with pytest.raises(ValueError, match="negative"):
        client.streams.close(timeout)


@pytest.mark.parametrize(("timeout", "asked"), [(None, None), (0, None), (1.5, 1500)])
def test_threads_are_told_how_long_they_may_wait_for_the_broker(
    client: Client, timeout: float | None, asked: int | None
) -> None:
    threads = client.start()
    for thread in threads:
        thread.is_current = True  # so that close does not wait
    client.streams.close(timeout)
    assert [thread.asked[-1] for thread in threads] == [("shut down", Leave.STAY, asked)] * 2


def test_second_start_is_refused(client: Client) -> None:
    client.start()
    with pytest.raises(IllegalStateError, match="already started"):
        client.streams.start()


def test_closing_twice_is_closing_once(client: Client) -> None:
    threads = client.start()
    client.streams.close(0)
    client.streams.close(0)
    assert [len([a for a in thread.asked if a[0] == "shut down"]) for thread in threads] == [1, 1]


def test_local_state_is_not_deleted_while_the_client_runs(client: Client) -> None:
    client.start()
    with pytest.raises(IllegalStateError, match=r"only be deleted before start\(\) or after close\(\)"):
        client.streams.clean_up()


# -- listeners ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN])
def test_listener_may_close_the_client_in_any_state(tmp_path: Path, state: State) -> None:
    client = Client(tmp_path)
    answers: list[bool] = []

    def listen(new: State, old: State) -> None:
        client.heard.append((old, new))
        if new is state:
            answers.append(client.streams.close())

    client.listen = listen
    (thread,) = client.start() or [None]  # type: ignore[list-item]
    thread.run()
    if state is State.PENDING_SHUTDOWN:
        client.streams.close(0)
    assert len(answers) == 1
    if thread.state is not ThreadState.DEAD:
        thread.end()
    assert client.streams.state is State.NOT_RUNNING
    assert client.path.endswith("PENDING_SHUTDOWN NOT_RUNNING")


def test_thread_is_never_started_when_the_listener_closes_the_client_first(tmp_path: Path) -> None:
    client = Client(tmp_path)
    client.listen = lambda new, old: new is State.REBALANCING and client.streams.close()
    (thread,) = client.start() or [None]  # type: ignore[list-item]
    assert "start" not in thread.asked
    assert client.streams.state is State.NOT_RUNNING


def test_listener_is_told_in_order_and_without_the_lock_when_others_change_the_state_meanwhile(tmp_path: Path) -> None:
    client = Client(tmp_path)
    in_listener, go_on = threading.Event(), threading.Event()

    def listen(new: State, old: State) -> None:
        client.heard.append((old, new))
        if new is State.RUNNING:
            in_listener.set()
            assert go_on.wait(60)

    client.listen = listen
    (thread,) = client.start() or [None]  # type: ignore[list-item]
    runner = threading.Thread(target=thread.run)
    runner.start()
    assert in_listener.wait(60)
    assert client.streams.close(0) is False  # the thread does not wait for the listener
    thread.end()
    assert client.streams.state is State.NOT_RUNNING
    assert client.streams.close(0) is False  # but closing completes only when the listener has received everything
    go_on.set()
    runner.join(60)
    assert client.streams.close(0) is True
    assert client.path == "CREATED REBALANCING RUNNING PENDING_SHUTDOWN NOT_RUNNING"


@pytest.mark.parametrize("fails", [lambda: 1 // 0, lambda: sys.exit(3)])
def test_error_of_a_listener_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fails: Callable[[], object]
) -> None:
    client = Client(tmp_path)
    client.listen = lambda new, old: fails()
    client.start()[0].run()
    assert client.streams.state is State.RUNNING
    assert "the state listener failed" in caplog.text


# -- directories ---------------------------------------------------------------------------------------------------


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {"application.id": "app", "bootstrap.servers": "127.0.0.1:1", "state.dir": str(folder), **more}


def test_two_clients_of_a_process_have_directories_of_their_own(tmp_path: Path) -> None:
    first, second = Client(tmp_path), Client(tmp_path)
    for client in (first, second):
        (thread,) = client.start()
        assert client.streams.state is State.REBALANCING
        client.streams.close(0)
        thread.end()
    assert not (tmp_path / "app" / "instance-2").exists()  # they did not run at the same time
    first, second = Client(tmp_path), Client(tmp_path)
    threads = [first.start()[0], second.start()[0]]
    assert (tmp_path / "app" / "instance-2" / ".lock").exists()
    for client, thread in zip((first, second), threads, strict=True):
        client.streams.close(0)
        thread.end()


def test_directory_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateError, match=r"file/below.*set state\.dir"):
        Client(tmp_path / "file" / "below").start()


def test_directory_is_free_again_when_the_start_fails(tmp_path: Path) -> None:
    broken = Client(tmp_path)

    def fail() -> Any:
        raise ConfigError("no such setting", key="x")

    broken.world.admin = fail  # type: ignore[method-assign]
    with pytest.raises(ConfigError):
        broken.start()
    fine = Client(tmp_path)
    fine.start()
    fine.streams.close(0)
    fine.made[0].end()


@pytest.mark.parametrize(
    "step",
    ["warn_of_missing_sinks", "StateCleaner", "open_assignment_events", "OpenTransactions", "open_snapshots", ""],
)
def test_failed_start_leaves_nothing_open_and_can_be_repeated(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second start created a second admin client, state cleaner and other threads."""

    def fail(*_: Any, **__: Any) -> Any:
        raise ConfigError("no such setting", key="x")

    client = Client(tmp_path, processing_guarantee="exactly_once_v2")
    # What a failed start leaves open is not visible from outside.
    shared_resources, before = client.streams._shared, set(threading.enumerate())
    listeners = list(shared_resources.rebalance_listeners)
    factory: Any = client.factory
    with monkeypatch.context() as patched:
        patched.setattr(shared if step else factory, step or "new_thread", fail)
        with pytest.raises(ConfigError):
            client.start()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), thread.name
    assert client.world.open_clients == set()
    assert shared_resources.admin is None
    assert shared_resources.rebalance_listeners == listeners
    assert client.streams.state is State.CREATED
    other = StateDirectory(str(tmp_path), "app")
    other.open()
    assert other.path == str(tmp_path / "app")  # not the directory of a second instance
    other.close()
    client.start()
    assert [type(one) for one in client.world.open_clients] == [WorldAdmin]
    client.streams.close(0)
    client.made[-1].end()
    assert client.streams.state is State.NOT_RUNNING
    assert client.world.open_clients == set()


def test_client_is_closed_after_a_failed_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ConfigError("no such setting", key="x")

    client = Client(tmp_path)
    monkeypatch.setattr(shared, "open_snapshots", fail)
    with pytest.raises(ConfigError):
        client.start()
    assert client.streams.close(0)
    assert client.world.names() == ["clients closed"]


@pytest.mark.parametrize("name", ["a/b", "../a", "", ".", "a b", "x" * 250])
def test_application_id_that_is_no_name_is_refused_with_the_rule(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"application\.id") as caught:
        KafkaStreams(copying(), settings(tmp_path, **{"application.id": name}))
    assert caught.value.key == "application.id"
    assert "letters" in str(caught.value) or "a-z" in str(caught.value).lower()


@pytest.mark.parametrize("key", ["max.poll.records", "consumer.max.poll.records", "main.consumer.max.poll.interval.ms"])
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_number_with_which_nothing_would_ever_be_read_is_refused(tmp_path: Path, key: str, value: str) -> None:
    config = {"application.id": "app", "bootstrap.servers": "b:1", "state.dir": str(tmp_path), key: value}
    name = key.rpartition("consumer.")[2]
    with pytest.raises(ConfigError, match=rf"{name} ?= ?'{value}' is not (valid|allowed)[:;] expected a whole number"):
        KafkaStreams(copying(), config)


def test_local_state_is_deleted_before_the_start_and_after_the_end(tmp_path: Path) -> None:
    client = Client(tmp_path)
    state = tmp_path / "app" / "0_0"
    state.mkdir(parents=True)
    client.streams.clean_up()
    assert not state.exists()
    (thread,) = client.start()
    client.streams.close(0)
    thread.end()
    state.mkdir()
    client.streams.clean_up()
    assert not state.exists()


# -- around --------------------------------------------------------------------------------------------------------


def test_client_is_a_context_that_starts_and_closes(tmp_path: Path) -> None:
    client = Client(tmp_path)
    with client.streams as streams:
        assert streams.state is State.REBALANCING
        client.made[0].is_current = True
    assert client.made[0].asked[-1] == ("shut down", Leave.STAY, None)


def test_stores_are_not_readable_before_the_start(client: Client) -> None:
    with pytest.raises(StreamsNotStartedError):
        client.streams.store("counts")


def test_waiting_for_a_state_ends_when_it_cannot_come_any_more(client: Client) -> None:
    threads = client.start()
    assert client.streams.wait_until(State.REBALANCING, 0) is True
    assert client.streams.wait_until(State.RUNNING, 0) is False
    client.streams.close(0)
    for thread in threads:
        thread.end()
    assert client.streams.wait_until(State.RUNNING) is False


def test_configuration_of_a_client_is_the_checked_one(client: Client) -> None:
    assert isinstance(client.streams.config, StreamsConfig)
    assert client.streams.config.num_stream_threads == 2


# -- cleaning ------------------------------------------------------------------------------------------------------


def test_local_state_is_cleaned_only_when_the_client_has_been_running_for_the_delay(client: Client) -> None:
    first, second = client.start()
    cleaner, clock = client.streams._shared._cleaner, client.world.clock  # its thread sleeps for minutes
    assert cleaner is not None
    directory = client.streams._shared.directory  # it holds the lock of the process
    path = Path(directory.prepare_task(task("0_0")))
    os.utime(path, (0, 0))
    clock.advance(700_000)  # brokers were unavailable: the group has not answered yet
    assert cleaner.clean() == ()
    first.run()
    second.run()
    clock.advance(500_000)
    second.go(ThreadState.PARTITIONS_REVOKED)
    clock.advance(200_000)
    assert cleaner.clean() == ()
    second.run()
    clock.advance(599_999)
    assert cleaner.clean() == ()
    assert path.exists()
    clock.advance(1)
    assert list(cleaner.clean()) == [task("0_0")]
    assert not path.exists()


@pytest.mark.parametrize(("max_age_ms", "stay"), [(-1, ["0_0", "0_1", "global"]), (1_200_000, ["0_1"]), (0, [])])
def test_state_older_than_the_maximum_age_is_deleted_at_the_start(
    tmp_path: Path, max_age_ms: int, stay: list[str]
) -> None:
    client = Client(tmp_path, state_cleanup_dir_max_age_ms=max_age_ms)
    client.world.clock.advance(2_000_000 - client.world.clock.now_ms())
    directory = StateDirectory(str(tmp_path), "app")
    directory.open()
    paths = [*(Path(directory.prepare_task(task(name))) for name in ("0_0", "0_1")), Path(directory.prepare_global())]
    for path, changed_s in zip(paths, (799, 1_999, 799), strict=True):
        (path / "rocksdb").mkdir()
        os.utime(path, (changed_s, changed_s))
    directory.close()
    (thread,) = client.start()
    assert [path.name for path in paths if path.exists()] == stay
    client.streams.close(0)
    thread.end()


def test_state_that_a_killed_process_has_written_to_lately_is_not_outdated(tmp_path: Path) -> None:
    """Its directory has no new file since it was opened, perhaps days ago."""
    client = Client(tmp_path, state_cleanup_dir_max_age_ms=1_200_000)
    client.world.clock.advance(2_000_000 - client.world.clock.now_ms())
    directory = StateDirectory(str(tmp_path), "app")
    directory.open()
    paths = {changed_s: Path(directory.prepare_task(task(f"0_{changed_s}"))) for changed_s in (700, 1_999)}
    for changed_s, path in paths.items():
        (path / "rocksdb").mkdir()
        log = path / "rocksdb" / "000004.log"
        log.touch()
        os.utime(log, (changed_s, changed_s))
        os.utime(path, (100, 100))
    directory.close()
    (thread,) = client.start()
    assert [changed_s for changed_s, path in paths.items() if path.exists()] == [1_999]
    client.streams.close(0)
    thread.end()


def test_start_fails_when_outdated_state_cannot_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(tmp_path, state_cleanup_dir_max_age_ms=0)
    directory = StateDirectory(str(tmp_path), "app")
    directory.open()
    path = Path(directory.prepare_task(task("0_0")))
    (path / "rocksdb").mkdir()
    os.utime(path, (0, 0))
    directory.close()

    def fail(self: StateDirectory, task_id: object) -> None:
        raise StateError("cannot delete it: delete it by hand")

    monkeypatch.setattr(StateDirectory, "wipe_task", fail)
    with pytest.raises(StateError, match="delete it by hand"):
        client.streams.start()
    assert directory.open()  # it is unlocked


def test_state_listener_may_ask_the_client_while_a_thread_is_removed(client: Client) -> None:
    first, second = client.start()
    second.run()
    asked: list[bool] = []

    def listen(new: State, old: State) -> None:
        other = threading.Thread(target=client.streams.pause, daemon=True)
        other.start()
        other.join(PATIENCE_S)
        asked.append(other.is_alive())

    client.listen = listen
    with pytest.raises(StreamsError, match="its removal continues"):
        client.streams.remove_stream_thread(1)
    assert first.state is ThreadState.PENDING_SHUTDOWN
    assert asked == [False]
