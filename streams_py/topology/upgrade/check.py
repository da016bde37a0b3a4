"""Whether a new version of a topology can continue with the state of an old one.

State is in changelog topics and, between two sub-topologies, in repartition topics. Both are identified only by their
names, and their bytes do not describe themselves. So an upgrade is not safe in these cases:

* A store or repartition topic of the old version does not exist in the new one: its state or its records in transit are
  left behind. Often it has another *generated* name, since these names contain numbers.
* It exists, but has the content of another operator, because two generated names were swapped.
* It exists, but is read with other serdes, as another kind of store, or with windows of another size.
* It has another number of partitions: the new version does not start.

Sub-topology numbers are only used in task ids. When they change, tasks do not find their state on disk but restore it
from the changelogs. Two versions that divide their topology into tasks differently must not run in one group at the
same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from streams_py.topology.topology import Topology
from streams_py.topology.upgrade.of_text import shape_of_text
from streams_py.topology.upgrade.of_topology import shape_of
from streams_py.topology.upgrade.report import Finding, Level, UpgradeReport
from streams_py.topology.upgrade.shape import Lineage, Part, Shape

__all__ = ["check_upgrade"]

_GENERATED = re.compile(r".*\d{10}.*")
_ORDER = list(Level)

_UNTOLD = "serdes, kinds of stores, windows, partition counts (a description does not have them)"

# Property of a store -> why a different value is not safe.
_STORE_DETAILS = {
    "kind": "the content of its changelog is read as another kind of store",
    "key serde": "the content of its changelog is read with another serde",
    "value serde": "the content of its changelog is read with another serde",
    "window size": "windows in its changelog get another end",
    "duplicates": "the content of its changelog is read as another kind of store",
}
_REPARTITION_DETAILS = {
    "key serde": "records in transit are read with another serde",
    "value serde": "records in transit are read with another serde",
    "partitions": "the topic exists with another number, and so do the changelogs after it: the new version does not "
    "start",
}


def check_upgrade(old: Topology | str, new: Topology | str) -> UpgradeReport:
    """Compare two versions, each a topology or the text of its description (or Kafka Streams').

    A description has no serdes, windows and partitions; the report says what was not compared.

    Raises:
        TopologyError: a text is not a description.
    """
    if isinstance(old, str) or isinstance(new, str):  # compare both as descriptions
        shapes = [_text_shape(old), _text_shape(new)]
    else:
        shapes = [shape_of(old), shape_of(new)]
    findings = [*_findings(*shapes)]
    findings.sort(key=lambda finding: _ORDER.index(finding.level))
    unknown = (_UNTOLD,) if shapes[0].is_text else ()
    return UpgradeReport(tuple(findings), unknown)


def _text_shape(version: Topology | str) -> Shape:
    if isinstance(version, str):
        return shape_of_text(version)
    shape, known = shape_of_text(version.describe()), shape_of(version)
    return replace(
        shape,
        stores={name: replace(part, where=known.stores[name].where) for name, part in shape.stores.items()},
        repartitions={
            name: replace(part, where=known.repartitions[name].where)
            for name, part in shape.repartitions.items()
            if name in known.repartitions
        },
    )


def _findings(old: Shape, new: Shape) -> Iterator[Finding]:
    yield from _parts(old.stores, new.stores, "store")
    yield from _parts(old.repartitions, new.repartitions, "repartition topic")
    for name in sorted(old.stores.keys() & new.stores.keys()):
        yield from _store_details(old.stores[name], new.stores[name])
    for name in sorted(old.repartitions.keys() & new.repartitions.keys()):
        yield from _repartition_details(old.repartitions[name], new.repartitions[name], new)
    for name in sorted(old.globals.keys() & new.globals.keys()):
        yield from _global_details(old.globals[name], new.globals[name])
    yield from _tasks(old, new)


# -- names -------------------------------------------------------------------------------------------------------


def _parts(old: Mapping[str, Part], new: Mapping[str, Part], what: str) -> Iterator[Finding]:
    free = {name: part for name, part in new.items() if name not in old}
    for name, part in sorted(old.items()):
        if name not in new:
            successor = _successor(part, free)
            if successor is not None:
                del free[successor.name]
            yield _gone(part, successor, what)
        elif (other := _moved(part, new)) is not None:
            yield _changed_places(part, new[name], other, what)


def _successor(part: Part, free: Mapping[str, Part]) -> Part | None:
    """Return the part of the new version that replaces this one, among those with new names."""
    lineage = part.lineage
    rules: list[Callable[[Lineage], bool]] = [
        lambda now: lineage.exact is not None and now.exact == lineage.exact,
        lambda now: now.kinds == lineage.kinds,
        lambda now: now.origin == lineage.origin,
        lambda now: now.operator == lineage.operator,
    ]
    for same in rules:
        found = next((other for other in free.values() if same(other.lineage)), None)
        if found is not None:
            return found
    return None


def _moved(part: Part, new: Mapping[str, Part]) -> Part | None:
    """Return the part of the new version that replaces this one, if that is under another name.

    Returns the part with the same name if that has another purpose, and None if it has the same purpose.
    """
    same_name, was = new[part.name], part.lineage
    now = same_name.lineage
    others = [other for other in new.values() if other is not same_name]
    if was.exact is not None and now.exact is not None:
        if was.exact == now.exact:
            return None
        moved = next((other for other in others if other.lineage.exact == was.exact), None)
        if moved is not None:
            return moved
    is_generated = _GENERATED.fullmatch(part.name) is not None
    if was.operator != now.operator and (is_generated or was.exact is not None):
        return same_name
    if not is_generated or was.kinds == now.kinds:
        return None
    if was.origin != now.origin:
        return same_name
    return next((other for other in others if other.lineage.kinds == was.kinds), None)


def _gone(part: Part, successor: Part | None, what: str) -> Finding:
    topic = f"{part.name}-changelog" if what == "store" else part.name
    lost = "its state is left behind" if what == "store" else "records in it that were not read yet are left behind"
    if part.details.get("changelog") == "none":
        lost, topic = "its state is left behind, and has no changelog", part.name
    if successor is None:
        return Finding(
            Level.UNSAFE,
            part.name,
            f"{what} {part.name} is not in the new version: topic {topic} is orphaned, {lost}",
            "keep the operator; or, to remove it, check against the version after this one, and delete the topic",
        )
    return Finding(
        Level.UNSAFE,
        part.name,
        f"{what} {part.name} is called {successor.name} in the new version: topic {topic} is orphaned, {lost}",
        _fix(part, successor, what),
    )


def _fix(part: Part, successor: Part, what: str) -> str:
    at = "" if successor.where is None else f" at {successor.where}"
    if what == "store" and not part.name.endswith("-store"):
        return f'store="{part.name}"{at}'
    if what == "repartition topic" and part.name.endswith("-repartition"):
        return f'name="{part.name.removesuffix("-repartition")}"{at}'
    if _GENERATED.fullmatch(part.name):
        return f"add new operators after this one{at}, so that it keeps its number; and set name= in a later version"
    return f"set the name= that it had{at}"


def _changed_places(part: Part, same_name: Part, other: Part, what: str) -> Finding:
    if other is same_name:
        message = (
            f"{what} {part.name} belongs to another operator in the new version ({_who(same_name)} instead of "
            f"{_who(part)}), which would continue with its content"
        )
        return Finding(Level.UNSAFE, part.name, message, _fix_place(part, what))
    message = (
        f"{what} {part.name} is swapped: its content belongs to {other.name} in the new version, and another "
        "operator would continue with it"
    )
    return Finding(Level.UNSAFE, part.name, message, _fix(part, other, what))


def _who(part: Part) -> str:
    operator, topics = part.lineage.origin
    return f"{operator or 'a node'} of {', '.join(sorted(topics)) or 'no topic'}"


def _fix_place(part: Part, what: str) -> str:
    keyword = "store" if what == "store" else "name"
    return f'give the new operator another {keyword}=, and the old one {keyword}="{part.name}"'


# -- content of stores and topics --------------------------------------------------------------------------------


def _differing(old: Part, new: Part, properties: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in properties:
        before, after = old.details.get(name), new.details.get(name)
        if before != after and (old.details and new.details):
            yield name, before or "none", after or "none"


def _at(part: Part) -> str:
    return "" if part.where is None else f" at {part.where}"


def _store_details(old: Part, new: Part) -> Iterator[Finding]:
    name = old.name
    for what, before, after in _differing(old, new, _STORE_DETAILS):
        yield Finding(
            Level.UNSAFE,
            name,
            f"store {name} has another {what} ({after} instead of {before}): {_STORE_DETAILS[what]}",
            f'keep it, or start with an empty store under another store="..."{_at(new)}',
        )
    for what, before, after in _differing(old, new, {"changelog": "", "time to live": "", "history": ""}):
        if what == "changelog":
            yield _changelog(old, new, before, after)
        elif "none" in (before, after):
            message = f"store {name} has another {what} ({after} instead of {before}): its files are of another kind"
            yield Finding(Level.UNSAFE, name, message, f'start with an empty store under another store="..."{_at(new)}')
        else:
            yield _kept_otherwise(old, what, before, after)
    for what, before, after in _differing(old, new, {"segments": "", "retention": ""}):
        if "none" in (before, after):
            continue  # then the kind of store differs
        if what == "segments" and old.details["medium"] == "disk":
            yield Finding(
                Level.UNSAFE,
                name,
                f"store {name} keeps its windows in other segments ({after} instead of {before}, because of another "
                "retention or grace): the content of its files is not found",
                "stop all instances and delete state.dir before you start the new version: it restores from the "
                "changelogs",
            )
        elif what == "retention":
            yield _kept_otherwise(old, what, before, after)


def _kept_otherwise(old: Part, what: str, before: str, after: str) -> Finding:
    return Finding(
        Level.WARNING,
        old.name,
        f"store {old.name} has another {what} ({after} instead of {before}): its changelog topic exists and keeps its "
        "settings",
        f"kafka-configs --alter --entity-type topics --entity-name <application.id>-{old.name}-changelog",
    )


def _changelog(old: Part, new: Part, before: str, after: str) -> Finding:
    name = old.name
    if before == "none":
        message = f"store {name} gets a changelog; its existing content is not in it"
        return Finding(Level.WARNING, name, message)
    return Finding(
        Level.UNSAFE,
        name,
        f"store {name} has another changelog ({after} instead of {before}): its old changelog is not restored",
        "do not change logging= and topology.optimization (and the topic of a source table)",
    )


def _repartition_details(old: Part, new: Part, shape: Shape) -> Iterator[Finding]:
    for what, before, after in _differing(old, new, _REPARTITION_DETAILS):
        behind = sorted(
            store for topics, stores in shape.subtopologies.values() if old.name in topics for store in stores
        )
        stores = f" (stores after it: {', '.join(behind)})" if behind else ""
        yield Finding(
            Level.UNSAFE,
            old.name,
            f"repartition topic {old.name} has another {'number of ' if what == 'partitions' else ''}{what} ({after} "
            f"instead of {before}): {_REPARTITION_DETAILS[what]}{stores}",
            f'keep it, or start with an empty topic under another name="..."{_at(new)}',
        )


def _global_details(old: Part, new: Part) -> Iterator[Finding]:
    name = old.name
    if old.lineage.origin != new.lineage.origin:
        yield Finding(
            Level.UNSAFE,
            name,
            f"global store {name} is filled from {_from(new)} instead of {_from(old)}: rows of the old topic stay in "
            "its files",
            f'set another store="..."{_at(new)}',
        )
    for what, before, after in _differing(old, new, {"kind": "", "key serde": "", "value serde": ""}):
        yield Finding(
            Level.UNSAFE,
            name,
            f"global store {name} has another {what} ({after} instead of {before}): its old files are read with it",
            f'set another store="..."{_at(new)}',
        )


def _from(part: Part) -> str:
    return ", ".join(sorted(part.lineage.origin[1])) or "no topic"


# -- tasks -------------------------------------------------------------------------------------------------------


def _tasks(old: Shape, new: Shape) -> Iterator[Finding]:
    for store in sorted(old.stores.keys() & new.stores.keys()):
        before, after = old.subtopology_of(store), new.subtopology_of(store)
        if before is None or after is None:
            continue
        if before != after:
            message = (
                f"store {store} moves from tasks {before}_* to {after}_*: it is restored from its changelog once, "
                "because task directories are named after tasks"
            )
            yield Finding(Level.WARNING, store, message)
        topics_before, topics_after = old.subtopologies[before][0], new.subtopologies[after][0]
        if topics_before != topics_after:
            message = (
                f"the tasks of store {store} read {_list(topics_after)} instead of {_list(topics_before)}: equal keys "
                "must be in partitions of equal numbers, and the largest topic must have as many partitions as before"
            )
            yield Finding(Level.WARNING, store, message)
    differing = sorted(
        id
        for id in old.subtopologies.keys() | new.subtopologies.keys()
        if old.subtopologies.get(id) != new.subtopologies.get(id)
    )
    if differing:
        message = (
            f"sub-topologies {', '.join(map(str, differing))} differ in their topics or stores: members of both "
            "versions cannot share tasks"
        )
        yield Finding(Level.STOP_FIRST, "tasks", message, "stop all instances of the old version, then start the new")


def _list(topics: frozenset[str]) -> str:
    return ", ".join(sorted(topics)) or "nothing"
