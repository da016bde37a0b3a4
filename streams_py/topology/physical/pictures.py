"""Pictures of a topology: SVG without additional tools, and text for Mermaid and Graphviz.

Each sub-topology is a box. The topics that it reads are above the box, the topics that it writes below it. Its stores
are next to the processors that use them. A repartition topic is below one box and above another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from streams_py.topology.declare.nodes import ProcessorNode, SinkNode, SourceNode
from streams_py.topology.physical.assembly import Node
from streams_py.topology.physical.subtopologies import Subtopology

_CHOSEN: Final = "(chosen for each record)"
_MERMAID_TOPIC: Final = "fill:#fff3d6,stroke:#b8860b"
_MERMAID_STORE: Final = "fill:#e3edfb,stroke:#3b6fb6"
_FILL: Final = {"topic": "#fff3d6", "node": "#ffffff", "store": "#e3edfb"}
_STROKE: Final = {"topic": "#b8860b", "node": "#666666", "store": "#3b6fb6"}

# Sizes in the picture, in pixels; the font is a monospaced one.
_CHARACTER: Final = 7.3
_PADDING: Final = 12
_HEIGHT: Final = 28
_ROW: Final = 62
_GAP: Final = 24
_MARGIN: Final = 20
_TITLE: Final = 26


def _title(sub: Subtopology) -> str:
    return f"Sub-topology {sub.id}" + (" (global)" if sub.is_global else "")


def _topics_read(node: Node) -> tuple[str, ...]:
    if not isinstance(node, SourceNode):
        return ()
    return node.topics if node.pattern is None else (f"/{node.pattern.pattern}/",)


def _topic_written(node: Node) -> tuple[str, ...]:
    return (node.topic or _CHOSEN,) if isinstance(node, SinkNode) else ()


def _stores_used(node: Node) -> tuple[str, ...]:
    return node.stores if isinstance(node, ProcessorNode) else ()


class _Ids:
    """Short identifiers for names that a picture's language may not allow."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def of(self, kind: str, name: str) -> str:
        return self._known.setdefault((kind, name), f"{kind}{len(self._known)}")

    def names(self, kind: str) -> Mapping[str, str]:
        """Return the identifier of each name."""
        return {name: id for (known, name), id in self._known.items() if known == kind}


def to_mermaid(subtopologies: Sequence[Subtopology]) -> str:
    """Return a Mermaid flowchart, which many sites render in Markdown."""
    ids = _Ids()
    boxes, edges = [], []
    for sub in subtopologies:
        boxes.append(f'  subgraph sub{sub.id}["{_title(sub)}"]')
        boxes += [f'    {ids.of("n", node.name)}["{_mermaid(node.name)}"]' for node in sub.nodes]
        boxes += [f'    {ids.of("s", store.name)}[("{_mermaid(store.name)}")]' for store in sub.stores]
        boxes.append("  end")
        edges += [f"  {a} {'---' if b[0] == 's' else '-->'} {b}" for a, b in _edges(sub, ids)]
    topics = [f'  {id}[/"{_mermaid(name)}"/]' for name, id in ids.names("t").items()]
    styles = [f"  style {id} {_MERMAID_TOPIC}" for id in ids.names("t").values()]
    styles += [f"  style {id} {_MERMAID_STORE}" for id in ids.names("s").values()]
    return "\n".join(["flowchart TD", *boxes, *topics, *edges, *styles]) + "\n"


def _mermaid(name: str) -> str:
    return escape(name).replace("&quot;", "#quot;")


def to_dot(subtopologies: Sequence[Subtopology]) -> str:
    """Return a graph in the language of Graphviz (``dot -Tpng``)."""
    ids = _Ids()
    boxes, edges = [], []
    for sub in subtopologies:
        boxes.append(f"  subgraph cluster_{sub.id} {{ label={_quoted(_title(sub))}; style=rounded;")
        boxes += [f"    {ids.of('n', node.name)} [label={_quoted(node.name)}, shape=box];" for node in sub.nodes]
        boxes += [
            f"    {ids.of('s', store.name)} [label={_quoted(store.name)}, shape=cylinder, style=filled, "
            f'fillcolor="{_FILL["store"]}"];'
            for store in sub.stores
        ]
        boxes.append("  }")
        edges += [f"  {a} -> {b}{' [dir=none, style=dashed]' if b[0] == 's' else ''};" for a, b in _edges(sub, ids)]
    topics = [
        f'  {id} [label={_quoted(name)}, shape=parallelogram, style=filled, fillcolor="{_FILL["topic"]}"];'
        for name, id in ids.names("t").items()
    ]
    head = ["digraph topology {", '  node [fontname="monospace", fontsize=10];']
    return "\n".join([*head, *boxes, *topics, *edges, "}"]) + "\n"


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _edges(sub: Subtopology, ids: _Ids) -> Iterable[tuple[str, str]]:
    for node in sub.nodes:
        here = ids.of("n", node.name)
        yield from ((ids.of("t", topic), here) for topic in _topics_read(node))
        yield from ((here, ids.of("n", child)) for child in sub.children_of(node.name))
        yield from ((here, ids.of("t", topic)) for topic in _topic_written(node))
        yield from ((here, ids.of("s", store)) for store in _stores_used(node))


# -- SVG -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Shape:
    """A named shape. ``x`` is its left edge, ``row`` counts from the top of its box."""

    name: str
    kind: str
    row: int
    x: float = 0.0

    @property
    def width(self) -> float:
        return len(self.name) * _CHARACTER + 2 * _PADDING

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


class _Block:
    """One sub-topology with its topics, laid out row by row."""

    def __init__(self, sub: Subtopology) -> None:
        self.title = _title(sub)
        depth: dict[str, int] = {}
        for node in sub.nodes:  # parents first
            above = () if isinstance(node, SourceNode) else node.parents
            depth[node.name] = 1 + max((depth[parent] for parent in above), default=0)
        self.rows = 2 + max(depth.values())
        self.nodes = {node.name: _Shape(node.name, "node", depth[node.name]) for node in sub.nodes}
        self.stores: dict[str, _Shape] = {}
        self.read: dict[str, _Shape] = {}
        self.written: dict[str, _Shape] = {}
        self.edges: list[tuple[_Shape, _Shape]] = []
        for node in sub.nodes:
            here = self.nodes[node.name]
            for topic in _topics_read(node):
                self.edges.append((self.read.setdefault(topic, _Shape(topic, "topic", 0)), here))
            self.edges += [(here, self.nodes[child]) for child in sub.children_of(node.name)]
            for topic in _topic_written(node):
                self.edges.append((here, self.written.setdefault(topic, _Shape(topic, "topic", self.rows - 1))))
            for store in _stores_used(node):
                self.edges.append((here, self.stores.setdefault(store, _Shape(store, "store", here.row))))
        self.width = self._lay_out()

    @property
    def shapes(self) -> list[_Shape]:
        return [*self.read.values(), *self.nodes.values(), *self.stores.values(), *self.written.values()]

    def _lay_out(self) -> float:
        """Place the shapes row by row, below their parents, without overlaps; return the total width."""
        parents: dict[int, list[_Shape]] = {}
        for above, below in self.edges:
            parents.setdefault(id(below), []).append(above)
        right_most = len(self.title) * _CHARACTER + 2 * _PADDING
        for row in range(self.rows):
            shapes = [shape for shape in self.shapes if shape.row == row]
            wanted = {
                id(shape): sum(above.middle for above in parents[id(shape)]) / len(parents[id(shape)])
                for shape in shapes
                if id(shape) in parents and shape.kind != "store"
            }
            right = 0.0
            for shape in sorted(shapes, key=lambda shape: (shape.kind == "store", wanted.get(id(shape), 0.0))):
                shape.x = max(right, wanted.get(id(shape), 0.0) - shape.width / 2)
                right = shape.x + shape.width + _GAP
            right_most = max(right_most, right - _GAP)
        return right_most


def to_svg(subtopologies: Sequence[Subtopology]) -> str:
    """Return a picture for browsers and notebooks."""
    blocks = [_Block(sub) for sub in subtopologies]
    parts: list[str] = []
    left = float(_MARGIN)
    height = _MARGIN * 2 + max((_ROW * block.rows + _TITLE for block in blocks), default=0)
    for block in blocks:
        left += _PADDING
        parts += _drawn(block, left)
        left += block.width + _PADDING + _GAP
    width = max(left - _GAP + _MARGIN, 2 * _MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="#666666"/></marker></defs>{"".join(parts)}</svg>\n'
    )


def _drawn(block: _Block, left: float) -> Iterable[str]:
    def top_of(shape: _Shape) -> float:
        return _MARGIN + shape.row * _ROW + (_TITLE if shape.row else 0)

    top = _MARGIN + _ROW - 8
    yield (
        f'<rect x="{left - _PADDING:.1f}" y="{top:.1f}" width="{block.width + 2 * _PADDING:.1f}" '
        f'height="{(block.rows - 2) * _ROW + 8:.1f}" rx="8" fill="#f6f6f6" stroke="#cccccc"/>'
        f'<text x="{left:.1f}" y="{top + 18:.1f}" fill="#444444">{escape(block.title)}</text>'
    )
    for above, below in block.edges:
        if below.kind == "store":
            y = top_of(above) + _HEIGHT / 2
            yield _line(
                left + above.x + above.width, y, left + below.x, top_of(below) + _HEIGHT / 2, 'stroke-dasharray="4 3"'
            )
        else:
            y = top_of(above) + _HEIGHT
            yield _line(left + above.middle, y, left + below.middle, top_of(below), 'marker-end="url(#arrow)"')
    for shape in block.shapes:
        radius = {"topic": 14, "node": 3, "store": 9}[shape.kind]
        yield (
            f'<rect x="{left + shape.x:.1f}" y="{top_of(shape):.1f}" width="{shape.width:.1f}" height="{_HEIGHT}" '
            f'rx="{radius}" fill="{_FILL[shape.kind]}" stroke="{_STROKE[shape.kind]}"/>'
            f'<text x="{left + shape.middle:.1f}" y="{top_of(shape) + 18:.1f}" text-anchor="middle">'
            f"{escape(shape.name)}</text>"
        )


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#666666" {style}/>'
