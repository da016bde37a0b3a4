"""Java and Python members in one group: either may lead, and each goes on with the other's state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ..kit import Application, Instance, text, true_counts

WORDS = 6_000


class Words:
    """The input in portions; what was fed so far must be what is counted."""

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


@pytest.mark.parametrize("ends", ["killed", pytest.param("closed", marks=pytest.mark.slow)])
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

    # Python goes on alone with what Java wrote, and leads when Java comes back.
    end(first)
    app.await_shared(python)
    words.count_more(python)
    second = app.start("java", command=java)
    app.await_shared(python, second)
    app.until(lambda: hold_everything(python, second), "actives and standbys on both")
    led = python.ask("led")
    assert led > 0
    words.count_more(python)

    # Java goes on alone with what Python wrote.
    end(python)
    app.await_shared(second)
    words.count_more(second)
