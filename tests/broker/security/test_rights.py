"""The rights of the page are sufficient, and each of them is needed: the error for a missing right names it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from streams_py.errors import StreamsError
from tests.support.broker.rights import Line, lines_of
from tests.support.broker.site import Site
from tests.support.waiting import until

APPLICATION, EXACTLY_ONCE = "An application", "Exactly-once"
_GOES_ON = frozenset({"DELETE-topic-<application.id>"})
"""Rights without which an application works; the log says what it cannot do."""


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("how", "guarantee"),
    [
        pytest.param("SCRAM-SHA-512", "at_least_once", id="scram"),
        pytest.param("certificate", "exactly_once_v2", id="certificate-exactly-once"),
        pytest.param("PLAIN", "at_least_once", id="plain", marks=pytest.mark.weekly),
        pytest.param("SCRAM-SHA-512", "exactly_once_v2", id="scram-exactly-once", marks=pytest.mark.weekly),
    ],
)
def test_application_works_with_the_rights_of_the_page(site: Callable[[], Site], how: str, guarantee: str) -> None:
    made = site()
    settings = made.settings(made.login(how), **{"processing.guarantee": guarantee})
    made.grant(APPLICATION, *([EXACTLY_ONCE] if guarantee == "exactly_once_v2" else []))
    made.write("a", "b", "a")
    with made.streams(settings):
        made.until_counted({"a": 2, "b": 1})


def _runs_until_it_fails(made: Site, guarantee: str, *, but: Line, more: Collection[Line] = ()) -> str:
    settings = made.settings(made.login("SCRAM-SHA-512"), **{"processing.guarantee": guarantee})
    made.grant(APPLICATION, *([EXACTLY_ONCE] if guarantee == "exactly_once_v2" else []), but=but)
    made.allow(more)
    made.write("a", "b", "a")
    return _error_of(made, settings)


def _error_of(made: Site, settings: Mapping[str, Any], then: Callable[[], None] = lambda: None) -> str:
    with made.streams(settings) as streams:
        then()
        try:
            ended = streams.wait(120)
        except StreamsError as refused:
            return str(refused)
        pytest.fail(f"it ended: {ended}; it is {streams.state.name} without the right")


def _is_named(line: Line, made: Site, text: str) -> bool:
    name = line.right(made.names).name
    return (
        f"no right {line.operation} on {line.kind}" in text
        and name.rstrip("-") in text
        and "\n" not in text
        and f"--operation {line.operation} --{line.kind.replace(' ', '-')}" in text
    )


_AT_EPOCH = "READ-topic-<output>"
"""Needed for records with timestamp 0 only, which no application of these tests has."""
_LINES = [line for line in lines_of(APPLICATION) if line.id not in _GOES_ON and line.id != _AT_EPOCH]
_QUICK = {"READ-group-<application.id>", "WRITE-topic-<output>"}


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=line.id, marks=[] if line.id in _QUICK else [pytest.mark.weekly]) for line in _LINES]
)
def test_missing_right_ends_the_application_and_is_named(site: Callable[[], Site], line: Line) -> None:
    made = site()
    text = _runs_until_it_fails(made, "at_least_once", but=line)
    assert _is_named(line, made, text), text


@pytest.mark.weekly
@pytest.mark.parametrize("line", [pytest.param(line, id=line.id) for line in _LINES + lines_of(EXACTLY_ONCE)])
def test_missing_right_is_named_under_exactly_once(site: Callable[[], Site], line: Line) -> None:
    made = site()
    text = _runs_until_it_fails(made, "exactly_once_v2", but=line)
    assert _is_named(line, made, text), text


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_topic_that_is_seen_but_may_not_be_written_is_named(site: Callable[[], Site], guarantee: str) -> None:
    """Without the right to describe the topic, looking up partitions fails; with it, the write fails."""
    made = site()
    (line,) = [line for line in _LINES if line.name == "<output>"]
    text = _runs_until_it_fails(made, guarantee, but=line, more=[replace(line, operation="DESCRIBE")])
    assert _is_named(line, made, text), text


@pytest.mark.weekly
def test_application_without_delete_works_and_says_what_stays(
    site: Callable[[], Site], caplog: pytest.LogCaptureFixture
) -> None:
    made = site()
    (line,) = [line for line in lines_of(APPLICATION) if line.id in _GOES_ON]
    settings = made.settings(made.login("SCRAM-SHA-512"), **{"repartition.purge.interval.ms": 200})
    made.grant(APPLICATION, but=line)
    made.write("a", "b", "a")
    with caplog.at_level(logging.WARNING, "streams_py"), made.streams(settings):
        made.until_counted({"a": 2, "b": 1})
        until(lambda: any(_is_named(line, made, text) for text in caplog.messages), "the warning")


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("guarantee", "line"),
    [pytest.param("at_least_once", line, id=line.id) for line in _LINES if line.operation != "CREATE"]
    + [
        pytest.param("exactly_once_v2", line, id=f"exactly-once-{line.id}")
        for line in _LINES + lines_of(EXACTLY_ONCE)
        if line.operation != "CREATE"
    ],
)
def test_right_that_is_withdrawn_while_it_runs_ends_the_application(
    site: Callable[[], Site], guarantee: str, line: Line
) -> None:
    made = site()
    settings = made.settings(made.login("SCRAM-SHA-512"), **{"processing.guarantee": guarantee})
    made.grant(APPLICATION, *([EXACTLY_ONCE] if guarantee == "exactly_once_v2" else []))
    made.write("a")

    def withdraw() -> None:
        made.until_counted({"a": 1})
        made.broker.withdraw(made.user, [line.right(made.names)])
        made.write("a")

    text = _error_of(made, settings, withdraw)
    assert _is_named(line, made, text), text
