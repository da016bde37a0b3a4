"""Hundreds of thousands of words counted by two and three processes, one of them killed and brought back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.broker.kit import Application, text, true_counts

pytestmark = pytest.mark.broker


@pytest.mark.smoke
def test_counts_are_exact_when_one_of_two_processes_is_killed_between_batches(
    application: Callable[..., Application],
) -> None:
    app = application()
    lines = text(200_000, seed=1)
    third = len(lines) // 3
    a = app.start("a")
    app.await_shared(a)
    app.feed(lines[:third])
    b = app.start("b")
    app.await_shared(a, b)
    app.await_caught_up()
    b.kill()
    app.feed(lines[third : 2 * third])
    app.await_shared(a)
    b = app.start("b")
    app.feed(lines[2 * third :])
    app.await_shared(a, b)
    app.await_caught_up()
    assert a.close() == b.close() == 0
    assert app.counts() == true_counts(lines)


def test_no_word_is_missing_when_one_of_three_processes_is_killed_in_the_middle(
    application: Callable[..., Application],
) -> None:
    app = application(num_standby_replicas=1)
    lines = text(200_000, seed=2)
    a, b, c = app.start("a"), app.start("b"), app.start("c")
    app.await_shared(a, b, c)
    app.feed(lines[: len(lines) // 2])
    app.until(lambda: sum(app.counts().values()) > 20_000, "counting to be under way")
    b.kill()
    app.feed(lines[len(lines) // 2 :])
    b = app.start("b")
    app.await_shared(a, b, c)
    app.await_caught_up()
    expected, counted = true_counts(lines), app.counts()
    assert counted.keys() == expected.keys()
    assert all(counted[word] >= count for word, count in expected.items())
    extra = sum(counted.values()) - sum(expected.values())
    assert extra < 40_000  # at most what was not committed yet at the kill, once
