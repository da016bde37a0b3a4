from __future__ import annotations

import os

import pytest

from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.runtime.processes.child import PROCESS_VARIABLE, ChildProcess, this_process

BASE = {"application.id": "app", "bootstrap.servers": "b:1"}


def test_names_that_only_one_process_may_have_get_its_number() -> None:
    child = ChildProcess(2, -1, -1, -1)
    config = child.config(
        StreamsConfig.of(BASE, **{"client.id": "c", "group.instance.id": "g", "main.consumer.group.instance.id": "m"})
    )
    assert config.client_id == "c-2"
    assert config.setting_for(ClientRole.PRODUCER, "group.instance.id") == "g-2"
    assert config.setting_for(ClientRole.MAIN_CONSUMER, "group.instance.id") == "m-2"


def test_a_configuration_without_such_names_stays_as_it_is() -> None:
    config = StreamsConfig.of(BASE)
    assert ChildProcess(2, -1, -1, -1).config(config) is config


def test_a_process_learns_who_it_is_once_and_its_own_children_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    (lives, other), (states, write), (requests, last) = os.pipe(), os.pipe(), os.pipe()
    this_process.cache_clear()
    try:
        monkeypatch.setenv(PROCESS_VARIABLE, ChildProcess(3, lives, write, requests).to_variable())
        child = this_process()
        assert child is not None
        assert child.number == 3
        assert PROCESS_VARIABLE not in os.environ
        child.report("RUNNING", True, False)
        assert os.read(states, 100) == b"RUNNING 1 0\n"
        assert this_process() is child
    finally:
        this_process.cache_clear()
        for descriptor in (lives, other, states, write, requests, last):
            os.close(descriptor)


def test_nobody_supervises_a_process_that_was_started_by_hand() -> None:
    this_process.cache_clear()
    assert this_process() is None
