"""The check of a torture run finds every planted fault, and reports none without a fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streams_py.testing.torture.history import Entry, History, entry_bytes, read_entry

Line = tuple[int, str, Entry]
WRITTEN = {"a": 5, "b": 5}


def clean() -> list[Line]:
    """Two keys in two partitions; number n is written at time 10 n. The owner of partition 0 changes once, at 15."""
    lines = []
    for number in range(5):
        lines.append((0, "a", Entry(number, (number + 1, number + 1), "w1@0" if number < 2 else "w2@15")))
        lines.append((1, "b", Entry(number, (number + 1, number + 1), "w1@0")))
    return lines


def found(lines: list[Line], *, exact: bool = True, stored: dict[str, int] | None = None) -> set[str]:
    history = History(exact=exact)
    for offset, (partition, key, entry) in enumerate(lines):
        history.add_record(partition, offset, key, entry, 10 * entry.number)
    for stage in range(2):
        history.compare_state(stage, "store", {"a": 5, "b": 5} if stored is None else stored)
    return {violation.kind for violation in history.violations(WRITTEN)}


def change(at: int, entry: Entry) -> Callable[[list[Line]], None]:
    def apply(lines: list[Line]) -> None:
        lines[at] = (*lines[at][:2], entry)

    return apply


PLANTED: dict[str, tuple[Callable[[list[Line]], object], set[str]]] = {
    "nothing": (lambda lines: None, set()),
    "lost in the middle": (lambda lines: lines.pop(4), {"lost"}),
    "lost at the end": (lambda lines: lines.pop(), {"lost", "wrong state"}),
    "lost altogether": (
        lambda lines: lines.__setitem__(slice(None), [line for line in lines if line[1] == "a"]),
        {"lost", "wrong state"},
    ),
    "duplicated": (lambda lines: lines.insert(5, lines[4]), {"duplicated"}),
    "reordered": (lambda lines: lines.insert(4, lines.pop(6)), {"reordered"}),
    "invented": (lambda lines: lines.append((0, "a", Entry(5, (6, 6), "w2@15"))), {"invented", "wrong state"}),
    "unknown key": (lambda lines: lines.append((0, "c", Entry(0, (1, 1), "w2@15"))), {"invented", "wrong state"}),
    "aborted read": (lambda lines: lines.insert(3, (0, "a", Entry(-7, (3, 3), "w2@15"))), {"aborted read"}),
    "counted twice": (change(6, Entry(3, (5, 5), "w2@15")), {"miscounted"}),
    "counted twice by one stage": (change(6, Entry(3, (4, 5), "w2@15")), {"miscounted"}),
    "old state": (change(6, Entry(3, (2, 2), "w2@15")), {"miscounted"}),
    "double ownership": (change(8, Entry(4, (5, 5), "w1@0")), {"double ownership"}),
    "commit after revoke": (
        lambda lines: lines.append((0, "a", Entry(4, (5, 5), "w1@0"))),
        {"double ownership", "duplicated"},
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_is_found_under_exactly_once(name: str) -> None:
    plant, expected = PLANTED[name]
    lines = clean()
    plant(lines)
    assert found(lines) == expected


def test_state_that_differs_from_the_output_is_found() -> None:
    assert found(clean(), stored={"a": 5, "b": 4}) == {"wrong state"}
    assert found(clean(), stored={"a": 5}) == {"wrong state"}


def test_at_least_once_may_repeat_and_count_more_but_neither_lose_nor_count_less() -> None:
    lines = clean()
    lines[6:6] = [(0, "a", Entry(1, (2, 2), "w1@0")), (0, "a", Entry(1, (3, 3), "w2@15"))]
    assert found(lines, exact=False) == set()
    lines = [line for line in clean() if line[2].number != 4]
    assert found(lines, exact=False, stored={"a": 4, "b": 4}) == {"lost"}
    lines = clean()
    change(6, Entry(3, (2, 2), "w2@15"))(lines)
    assert found(lines, exact=False) == {"miscounted"}


def test_at_least_once_lets_a_frozen_owner_send_what_was_on_its_way_but_not_go_on() -> None:
    lines = clean()
    lines.insert(5, (0, "a", Entry(1, (2, 2), "w1@0")))
    assert found(lines, exact=False) == set()
    assert found(lines) == {"double ownership", "duplicated"}
    lines = clean()
    lines.insert(9, (0, "a", Entry(4, (5, 5), "w1@0")))
    assert found(lines, exact=False) == {"double ownership"}


def test_entries_are_read_as_they_were_written() -> None:
    for entry in (Entry(0, (), ""), Entry(-3, (1,), "7.0"), Entry(10**12, (5, 6, 7), "12.3")):
        assert read_entry(entry_bytes(entry)) == entry
    with pytest.raises(ValueError, match="not enough values"):
        read_entry(b"1|2")
