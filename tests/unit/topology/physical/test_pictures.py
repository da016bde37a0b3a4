"""Diagrams of topologies: they are complete, nothing overlaps, and all names can be drawn."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree as ET

import pytest

from streams_py import StreamsBuilder, Topology, serdes
from tests.conformance.programs import build_program

PROGRAMS = ["P12", "P45", "P59", "P60", "P72"]


def names_in(topology: Topology) -> set[str]:
    topics = re.findall(r"topics?: \[?([^\])\n]*)", topology.describe())
    return {node.name for node in topology.nodes} | set(topology.stores) | {t for ts in topics for t in ts.split(", ")}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_node_store_and_topic_is_drawn(program: str) -> None:
    topology = build_program(program)
    for picture in (topology.to_svg(), topology.to_mermaid(), topology.to_dot()):
        assert all(f">{name}<" in picture or f'"{name}"' in picture for name in names_in(topology))


@pytest.mark.parametrize("program", PROGRAMS)
def test_shapes_do_not_overlap_and_are_inside(program: str) -> None:
    root = ET.fromstring(build_program(program).to_svg())
    shapes = [
        tuple(float(rect.attrib[side]) for side in ("x", "y", "width", "height"))
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
        if rect.attrib["fill"] != "#f6f6f6"
    ]
    for (x1, y1, w1, h1), (x2, y2, w2, h2) in itertools.combinations(shapes, 2):
        assert x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1
    for x, y, w, h in shapes:
        assert x >= 0
        assert x + w <= float(root.attrib["width"])
        assert y >= 0
        assert y + h <= float(root.attrib["height"])


def test_names_of_any_kind_are_escaped() -> None:
    topology = Topology().add_source('<a & "b">', re.compile("in<.*>")).add_sink("k", "out", '<a & "b">')
    ET.fromstring(topology.to_svg())
    assert '"<a & \\"b\\">"' in topology.to_dot()
    assert '["&lt;a &amp; #quot;b#quot;&gt;"]' in topology.to_mermaid()


def test_notebook_shows_the_picture_and_text_the_description() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("in").to("out")
    topology = builder.build()
    assert topology.to_svg() in topology._repr_html_()  # what Jupyter calls
    assert repr(topology) == topology.describe()
    assert repr(topology.describe()).startswith("Topologies:\n   Sub-topology: 0"), "line by line, not as a literal"
    assert Topology()._repr_html_().startswith("<div")  # what Jupyter calls
