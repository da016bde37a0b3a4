"""Generated names of internal topics: found with their lines, reported in a warning, or refused."""

from __future__ import annotations

import inspect
import logging

import pytest

from streams_py import JoinWindows, StreamsBuilder, TimeWindows, Topology, TopologyError, serdes
from streams_py.topology.generated_names import check_generated_names, generated_names


def program(*, named: bool) -> Topology:
    def name(text: str) -> str | None:
        return text if named else None

    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    stream = builder.stream("in").select_key(lambda k, v: v)
    stream.group_by_key(name=name("grouped")).count(store=name("counts"))
    stream.group_by_key(name=name("g")).windowed_by(TimeWindows.of(1)).count(store=name("windows"))
    stream.join(builder.stream("other"), max, JoinWindows.of(1), name=name("joined"), store=name("kept"))
    builder.table("rows", store=name("rows")).group_by(lambda k, v: (v, v), name=name("t")).count(store=name("c"))
    return builder.build()


def test_named_program_has_none() -> None:
    assert generated_names(program(named=True)) == {}
    check_generated_names(program(named=True), forbidden=True)


def test_each_generated_topic_is_found_with_its_line() -> None:
    found = generated_names(program(named=False))
    source, first = inspect.getsourcelines(program)
    join = next(number for number, line in enumerate(source) if "stream.join" in line) + first
    assert len([topic for topic in found if topic.endswith("-repartition")]) == 4
    assert len([topic for topic in found if topic.endswith("-changelog")]) == 6
    assert [at for topic, at in found.items() if "-JOINTHIS-" in topic] == [f"{__file__}:{join}"]


def test_optimised_and_unlogged_stores_have_no_such_topic() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.table("in").join(builder.table("other"), max)
    assert generated_names(builder.build({"topology.optimization": "all"})) == {}


def test_warning_names_them_all_and_enforcement_refuses(caplog: pytest.LogCaptureFixture) -> None:
    topology = program(named=False)
    with caplog.at_level(logging.WARNING):
        check_generated_names(topology, forbidden=False)
    assert all(topic in caplog.text for topic in generated_names(topology))
    with pytest.raises(TopologyError, match=r"ensure\.explicit.internal.resource.naming"):
        check_generated_names(topology, forbidden=True)
