"""Lists of tasks: syntax, configuration and encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.task_list import TAG_VALUE_CHARS_MAX, TaskList
from streams_protocol.types import TaskId
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError

BASE = {"application.id": "app", "bootstrap.servers": "embedded"}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("2_0", "2_0"),
        ("2_1,2_0,2_3", "2_0-1,2_3"),
        ("10_0,2_0", "2_0,10_0"),
        ("2_0-5,2_3-9", "2_0-9"),
        ("2_0-2,2_3-4", "2_0-4"),
        ("2_*,2_7", "2_*"),
        (" 2_0 , 1_1 ", "1_1,2_0"),
        ("2_4-4", "2_4"),
    ],
)
def test_list_on_the_wire_is_sorted_and_joined(text: str, canonical: str) -> None:
    assert TaskList.to_tag(text) == canonical
    assert TaskList.to_tag(canonical) == canonical


@pytest.mark.parametrize("text", ["2", "2_", "_1", "2_5-3", "a_b", "2_-1", "2_1-", "2_1,,2_2", "2_2147483648", "1_1_1"])
def test_malformed_item_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"static\.tasks: .* is not a valid task list item; write 2_0, 2_0-5 or 2_\*"):
        TaskList.to_tag(text)


def test_list_over_the_limit_is_refused() -> None:
    text = ",".join(f"{n}_0" for n in range(2000))
    assert len(text) > TAG_VALUE_CHARS_MAX
    with pytest.raises(ValueError, match="at most 8192 are allowed"):
        TaskList.to_tag(text)


ITEMS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9)).filter(lambda i: i[1] <= i[2]))


@given(ITEMS)
def test_list_means_what_its_items_say(items: list[tuple[int, int, int]]) -> None:
    tasks = {number: [TaskId(number, p) for p in range(8)] for number in range(2)}
    expected = {t for own in tasks.values() for t in own for g, a, b in items if t.subtopology == g and a <= t[2] <= b}
    found = TaskList.of([f"{group}_{first}-{last}" for group, first, last in items])
    assert set(found.among(tasks)) == expected
    assert str(TaskList.of_tag(str(found))) == str(found)


@pytest.mark.parametrize(
    "settings", [{"static.tasks": "1_1,1_0"}, {"static.tasks": ["1_1", "1_0"]}, {"client.tag.static.tasks": "1_1,1_0"}]
)
def test_setting_travels_as_client_tag(settings: dict[str, object]) -> None:
    assert StreamsConfig.of({**BASE, **settings}).client_tags == {"static.tasks": "1_0-1"}


def test_empty_list_is_a_list_and_no_list_is_none() -> None:
    assert StreamsConfig.of({**BASE, "static.tasks": ""}).client_tags == {"static.tasks": ""}
    assert StreamsConfig.of(BASE).client_tags == {}


def test_list_may_be_longer_than_other_tags_but_counts_as_one() -> None:
    text = ",".join(f"{n}_0" for n in range(50))
    tags = {f"client.tag.t{n}": "x" for n in range(4)}
    assert StreamsConfig.of({**BASE, **tags, "static.tasks": text}).client_tags["static.tasks"] == text
    with pytest.raises(ConfigError, match="at most 5 client tags"):
        StreamsConfig.of({**BASE, **tags, "client.tag.t5": "x", "static.tasks": text})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"static.tasks": "0_0", "client.tag.static.tasks": "0_0"}, "both static.tasks and"),
        ({"static.tasks": "nonsense"}, "'nonsense' is not a valid task list item"),
        ({"static.tasks": [1]}, "static.tasks = "),
        ({"static.tasks": 7}, "static.tasks = 7"),
        ({"static.tasks": "0_0", "rack.aware.assignment.tags": "static.tasks"}, "does not describe a location"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StreamsConfig.of({**BASE, **settings})
