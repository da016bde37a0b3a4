"""Searches with a bounded number of steps find the same as :mod:`re`."""

from __future__ import annotations

import random
import re
import warnings

import pytest

from streams_py.system import bounded_patterns
from streams_py.system.bounded_patterns import BoundedPattern, Steps, StepsExceededError

LONG = "a" * 60 + "!"


def drawn(rng: random.Random, depth: int = 0) -> str:
    """A regular expression, which may be invalid."""
    match rng.randrange(12 if depth < 3 else 6):
        case 0 | 1 | 2:
            return rng.choice("abc")
        case 3:
            return rng.choice([".", "[ab]", "[^a]", r"\w", r"\d", r"\s", "[a-c]"])
        case 4:
            return rng.choice(["^", "$", r"\b", r"\B", r"\Z", r"\A"])
        case 5:
            return rng.choice(["", "a", "b", "(?<=a)", "(?<!ab)"])
        case 6 | 7:
            return drawn(rng, depth + 1) + drawn(rng, depth + 1)
        case 8:
            return f"(?:{drawn(rng, depth + 1)}|{drawn(rng, depth + 1)})"
        case 9:
            return f"({drawn(rng, depth + 1)})" + rng.choice(["*", "+", "?", "{2}", "{1,3}", "*?", "{2,}", "{0,2}?"])
        case 10:
            return rng.choice(["(?=", "(?!"]) + drawn(rng, depth + 1) + ")"
        case _:
            return rng.choice(["(?i:", "(?s:", "(?m:", "(?-i:"]) + drawn(rng, depth + 1) + ")"


@pytest.mark.parametrize("seed", range(4))
def test_finds_what_re_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_patterns, "_DIRECT_MAX", -1)  # all searches use our own code
    rng = random.Random(seed)
    compared = 0
    while compared < 500:
        pattern = rng.choice(["", "", "(?i)", "(?m)", "(?s)"]) + drawn(rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = re.compile(pattern)
            except re.error:
                continue
        text = "".join(rng.choice("abcABC \n1") for _ in range(rng.randrange(9)))
        found, steps = BoundedPattern(pattern, Steps(1_000_000)), Steps(1_000_000)
        assert found.search(text, steps) is (expected.search(text) is not None), (pattern, text)
        assert found.fullmatch(text, steps) is (expected.fullmatch(text) is not None), (pattern, text)
        compared += 1


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)+$", "^(a|aa)+$", "(a*)*b", "^(?:a?){60}a{60}b", "([a-z]+)*$^x", "(?i)^(A+)+$"]
)
def test_time_grows_with_the_length_of_the_text(pattern: str) -> None:
    assert not BoundedPattern(pattern, Steps(1_000_000)).search(LONG, Steps(1_000_000))


@pytest.mark.parametrize("pattern", [r"^(a+)+\1$", "(a{0,200}){0,200}b", "(?>a*)*(a*)*b"])
def test_pattern_that_cannot_be_searched_in_bounded_time_is_refused(pattern: str) -> None:
    with pytest.raises(StepsExceededError) as error:
        BoundedPattern(pattern, Steps(1_000_000)).search(LONG, Steps(1_000_000))
    assert "aaa" not in str(error.value)


def test_steps_count_over_several_searches() -> None:
    steps, pattern = Steps(1_000), BoundedPattern("^a$", Steps(1_000_000))
    for _ in range(300):
        pattern.search("b", steps)
    with pytest.raises(StepsExceededError):
        any(pattern.search("b", steps) for _ in range(1_000))


def test_usual_patterns_are_searched_directly() -> None:
    for pattern in (r"^\d{4}-\d{2}-\d{2}$", r"^[A-Z]{2}\d+$", r"^[\w.+-]+@[\w-]+\.[\w.-]+$", "orders|payments"):
        assert BoundedPattern(pattern, Steps(1_000_000)).estimate(200) <= bounded_patterns._DIRECT_MAX  # the limit


def test_searches_that_may_backtrack_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    text, steps = "a" * 11 + "!", Steps(1_000_000)
    pattern = BoundedPattern("^(a|a|a)+$", steps)
    estimate = pattern.estimate(len(text))
    monkeypatch.setattr(bounded_patterns, "_DIRECT_MAX", estimate)
    monkeypatch.setattr(bounded_patterns, "_UNCERTAIN_MAX", 2 * estimate)
    steps = Steps(1_000_000)
    for is_direct in (True, True, False):
        assert not pattern.search(text, steps)
        assert (pattern._program is None) is is_direct


@pytest.mark.parametrize("pattern", ["[\x01-\uffff]" * 200, "a" * 50_001, "([\x01-\uffff]|b)*" * 200, "a|" * 24_000])
def test_pattern_that_takes_too_many_steps_to_compile_is_refused(pattern: str) -> None:
    with pytest.raises(StepsExceededError):
        BoundedPattern(pattern, Steps(100_000))


def test_time_to_write_repetitions_out_is_limited() -> None:
    pattern = BoundedPattern("((?=(a*)*b{99}){99}){99}x", Steps(100_000))
    with pytest.raises(StepsExceededError):
        pattern.search(LONG, Steps(100_000))


def test_invalid_pattern() -> None:
    with pytest.raises(re.error):
        BoundedPattern("(", Steps(1_000_000))
