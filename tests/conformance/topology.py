"""Compares topologies with recorded ones: names, numbers, groups, internal topics, description.

Everything is compared as text of the whole case, so nothing in a vector can change unnoticed. What the recording leaves
to chance is brought into one order on both sides: names after an arrow and in a list of stores or topics.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from streams_py.topology.physical.metadata import SubtopologyTopics, TopologyMetadata
from streams_py.topology.topology import Topology
from tests.conformance.programs import APPLICATION_ID, Program, program_of

_CHOOSER = re.compile(r"\(extractor class: .*\)$", re.MULTILINE)
_ARROW = re.compile(r"^( *(?:-->|<--) )(.*)$")
_LIST = re.compile(r"^(.*\((?:stores|topics): \[)(.*)(\]\))$")


def run_describe_case(case: Mapping[str, Any]) -> str | None:
    """None when our topology equals the recorded one, else the first difference.

    Raises NotSupportedCaseError for a program that uses what this library does not have.
    """
    try:
        program = program_of(case["id"])
    except KeyError as error:
        return f"unknown program {error}"
    ours = _lines(_ours(program))
    theirs = _lines({name: _in_one_order(name, value) for name, value in case.items()})
    for line, expected in zip(ours, theirs, strict=False):
        if line != expected:
            return f"expected {expected!r}, got {line!r}"
    return None if len(ours) == len(theirs) else f"expected {len(theirs)} lines, got {len(ours)}"


def _ours(program: Program) -> dict[str, Any]:
    """Our side of the case."""
    topology = program.make(program.optimization)
    metadata = topology.metadata(APPLICATION_ID, available_topics=program.available_topics)
    return {
        "id": program.id,
        "config": {"topology.optimization": program.optimization},
        "describe": _described(topology),
        "sub_topologies": [_subtopology(id, sub) for id, sub in sorted(metadata.subtopologies.items())],
        "copartition_groups": sorted(sorted(group) for group in metadata.copartition_groups),
        "internal_topics": _internal_topics(metadata),
        "stores": sorted(topology.stores),
        "global_stores": sorted(topology.global_stores),
    }


def _described(topology: Topology) -> list[str]:
    # The recording shows a fixed text for a topic chooser, since Java prints an object's address there.
    return _description_lines(_CHOOSER.sub("(extractor class: chooser)", topology.describe()))


def _subtopology(id: int, sub: SubtopologyTopics) -> dict[str, Any]:
    return {
        "id": id,
        "source_topics": sorted(sub.source_topics),
        "sink_topics": sorted(sub.sink_topics),
        "repartition_topics": sorted(sub.repartition_sources),
        "changelog_topics": sorted(sub.changelog_topics),
        "source_changelogs": sorted(sub.source_changelogs),
        "stores": sorted(sub.stores),
    }


def _internal_topics(metadata: TopologyMetadata) -> dict[str, Any]:
    return {
        topic.name: {"kind": topic.kind.value, "partitions": topic.partitions, "config": dict(topic.config)}
        for sub in metadata.subtopologies.values()
        for topic in (*sub.repartition_sources.values(), *sub.changelogs.values())
    }


def _in_one_order(name: str, value: Any) -> Any:
    """A field of the case in the order of ours."""
    match name:
        case "describe":
            return _description_lines(value)
        case "sub_topologies":
            subs = [
                {field: sorted(content) if isinstance(content, list) else content for field, content in sub.items()}
                for sub in value
            ]
            return sorted(subs, key=lambda sub: sub["id"])
        case "copartition_groups":
            return sorted(sorted(group) for group in value)
        case "stores" | "global_stores":
            return sorted(value)
        case _:
            return value


def _description_lines(text: str) -> list[str]:
    lines = []
    for line in text.split("\n"):
        if found := _ARROW.match(line):
            line = found[1] + ", ".join(sorted(found[2].split(", ")))
        elif found := _LIST.match(line):
            line = found[1] + ", ".join(sorted(found[2].split(", "))) + found[3]
        lines.append(line)
    return lines


def _lines(case: Mapping[str, Any]) -> list[str]:
    return json.dumps(case, indent=1, sort_keys=True).splitlines()
