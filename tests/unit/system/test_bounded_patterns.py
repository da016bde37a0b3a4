"""Searches with a bounded number of steps find the same as :mod:`re`."""

from __future__ import annotations

import random
import re
import warnings

import pytest

from streams_py.system import bounded_patterns
from streams_py.system.bounded_patterns import BoundedPattern, Steps, StepsExceededError

LONG = "a" * 60 + "!"
WIDE = "".join(chr(code) for code in range(0x10000, 0x10000 + 10_000, 2))
"""5,000 characters that a set does not join to ranges."""


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


@pytest.mark.parametrize(
    "body", ["", "^", "a{0}", "(?=a)", "(?!b)", r"\b", "(?:)", "(?:){9}", "|", "(?<=)", "(?:^|a{0})", "(?=(?:){9})"]
)
@pytest.mark.parametrize("repeat", ["(?:((BODY){N}){N}){N}", "(?:(?:(BODY){N}){N}){N,}", "((?:(BODY){N,N}?){N}?){N}"])
def test_required_rounds_without_a_character_count(body: str, repeat: str) -> None:
    found = BoundedPattern(repeat.replace("BODY", body).replace("N", "3000") + "b", Steps(1_000_000))
    assert found.estimate(1) > bounded_patterns._DIRECT_MAX  # the limit
    if body not in ("|", "(?:^|a{0})"):  # alternatives are written out
        assert not found.search("a", Steps(100_000))


@pytest.mark.parametrize(
    "pattern", ["(?:(?>(){N}){N}){N}b", "(?:(?:(){N}+){N}+)b", r"(a*)(?:(\1){N}){N}b", "(a)?(?:((?(1)|)){N}){N}b"]
)
def test_required_rounds_without_a_character_are_refused_if_only_re_can_search(pattern: str) -> None:
    with pytest.raises(StepsExceededError):
        BoundedPattern(pattern.replace("N", "3000"), Steps(1_000_000)).search("a", Steps(1_000_000))


def test_one_repetition_without_a_character_counts_at_each_place() -> None:
    pattern = BoundedPattern("(){65535}b", Steps(1_000_000))
    assert pattern.estimate(500) > 65535 * 500
    assert pattern.search("a" * 500 + "b", Steps(100_000))


@pytest.mark.parametrize("items", [WIDE, "".join(f"{one}-{chr(ord(one) + 1)}" for one in WIDE[::2])])
@pytest.mark.parametrize("flags", ["", "(?i)"])
def test_each_item_beyond_the_basic_plane_counts(items: str, flags: str) -> None:
    pattern = BoundedPattern(f"{flags}^[^b{items}]*b", Steps(2_000_000))
    assert pattern.estimate(10_000) > 500 * 10_000
    assert pattern.estimate(10_000) > bounded_patterns._DIRECT_MAX  # the limit


def test_large_set_counts_for_each_new_character_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_patterns, "_DIRECT_MAX", -1)  # all searches use our own code
    pattern, text = BoundedPattern(f"^[^b{WIDE}]*b", Steps(2_000_000)), "".join(map(chr, range(0x400, 0x800)))
    assert not pattern.search(text, Steps(2_000_000))  # builds the graph
    with pytest.raises(StepsExceededError):
        pattern.search(text, Steps(8 * len(text)))
    assert not pattern.search(text[:64] * 16, Steps(8 * len(text)))


@pytest.mark.parametrize("repeat", ["(?:ab|cd)*x", "(?:a(?=b)b)*x", "(?:ab)*x", "(?:ab)*?x", "^(?:a[ab])*+x"])
def test_each_group_counts_where_its_place_is_saved(repeat: str) -> None:
    few, many = (BoundedPattern("()" * count + repeat, Steps(2_000_000)) for count in (1, 2_000))
    assert many.estimate(100) > 50 * few.estimate(100)


@pytest.mark.parametrize("part", ["a{0}" * 200, "()" * 200, "(?:" + "|" * 200 + ")", f"[{WIDE}]"])
def test_parts_that_add_no_states_count_when_repetitions_are_written_out(part: str) -> None:
    pattern = BoundedPattern(f"(?:b{part}){{3000}}(a*)*c", Steps(2_000_000))
    with pytest.raises(StepsExceededError, match="too many steps"):
        pattern.search(LONG, Steps(1_400_000 if part.startswith("[") else 300_000))


def test_steps_count_over_several_searches() -> None:
    steps, pattern = Steps(1_000), BoundedPattern("^a$", Steps(1_000_000))
    for _ in range(300):
        pattern.search("b", steps)
    with pytest.raises(StepsExceededError):
        any(pattern.search("b", steps) for _ in range(1_000))


def test_usual_patterns_are_searched_directly() -> None:
    for pattern in (
        r"^\d{4}-\d{2}-\d{2}$",
        r"^[A-Z]{2}\d+$",
        r"^[\w.+-]+@[\w-]+\.[\w.-]+$",
        "orders|payments",
        r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d).{8,}$",
        r"^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)$",
    ):
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
        assert (pattern._program is None) is is_direct  # both ways find the same


@pytest.mark.parametrize("pattern", ["(?i)" + "[\u0100-\uffff]" * 500, "(?i:" + "[^\u0100-\ufffe]" * 500 + ")"])
def test_ranges_without_case_take_more_steps_to_compile(pattern: str) -> None:
    with pytest.raises(StepsExceededError):
        BoundedPattern(pattern, Steps(5_000_000))


@pytest.mark.parametrize("pattern", ["[\x01-\uffff]" * 200, "a" * 50_001, "([\x01-\uffff]|b)*" * 200, "a|" * 24_000])
def test_pattern_that_takes_too_many_steps_to_compile_is_refused(pattern: str) -> None:
    with pytest.raises(StepsExceededError):
        BoundedPattern(pattern, Steps(100_000))


def test_time_to_write_repetitions_out_is_limited() -> None:
    pattern = BoundedPattern("(a?(?=(a*)*b{99}){99}){99}x", Steps(100_000))
    with pytest.raises(StepsExceededError):
        pattern.search(LONG, Steps(100_000))


def test_invalid_pattern() -> None:
    with pytest.raises(re.error):
        BoundedPattern("(", Steps(1_000_000))


@pytest.mark.parametrize("pattern", [r"(?:\s*$){2000}!", r"(?:[\s\S]*$){2000}!"])
def test_repetition_before_the_end_of_the_text_may_also_end_before_its_last_line_break(pattern: str) -> None:
    end_of_text = pattern.replace("$", r"\Z")
    directly = bounded_patterns._DIRECT_MAX  # the limit
    assert BoundedPattern(pattern, Steps(1_000_000)).estimate(1) > directly
    assert BoundedPattern(end_of_text, Steps(1_000_000)).estimate(1) < directly
