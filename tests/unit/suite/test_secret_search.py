"""A secret in the output of a test fails it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.secret_search import MARKS, SecretSearch


@pytest.mark.parametrize("outcome", ["passed", "failed"])
@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ([("Captured log call", "all is well")], None),
        ([("Captured log setup", f"password={MARKS[0]}"), ("Captured stdout call", "")], "captured log setup"),
        ([("Captured stderr call", f"{MARKS[1]}-and-more")], "captured stderr call"),
    ],
    ids=["nothing", "log", "errors"],
)
def test_shown_secret_fails_the_test_that_shows_it(
    outcome: Any, sections: list[tuple[str, str]], says: str | None
) -> None:
    made = pytest.TestReport("a::b", ("a", 1, "b"), {}, outcome, None, "teardown", sections)
    looking = SecretSearch().pytest_runtest_makereport(None, None)  # type: ignore[arg-type]
    next(looking)
    with pytest.raises(StopIteration) as ended:
        looking.send(made)
    report = ended.value.value
    assert report.failed == (outcome == "failed" or says is not None)
    if outcome == "passed":
        assert report.longrepr == (None if says is None else f"a secret of the suite is shown: {says}")
