"""Small charts as SVG text. Colours are names of CSS variables, so that one drawing serves light and dark.

This module escapes all texts of a chart, because they may come from users (tags, host names). Callers must not escape
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 960
_LEFT: Final = 56
_BOTTOM: Final = 28
_TOP: Final = 8
_TICKS: Final = 4
_CELL_MIN: Final = 6.0
_CELL_TEXT_MIN: Final = 14.0


class Point(NamedTuple):
    """A point of a line: ``x`` from 0 to 1; ``y`` in units of the axis."""

    x: float
    y: float
    title: str


class Bar(NamedTuple):
    """One column: parts from the bottom up, as (name of the series, height)."""

    parts: Sequence[tuple[str, float]]
    title: str
    label: str = ""


class Cell(NamedTuple):
    """A cell of a grid with a CSS class (``kind``), a text, and the strength of its colour (``weight``, 0 to 1)."""

    kind: str
    text: str
    title: str
    weight: float = 1.0


def _svg(height: float, body: Sequence[str], label: str, width: float = WIDTH) -> str:
    narrow = f' style="max-width:{width:g}px"' if width < WIDTH else ""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label, quote=True)}"{narrow}>'
        + "".join(body)
        + "</svg>"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _axis(top: float, height: float, width: float = WIDTH) -> tuple[list[str], float]:
    """Return horizontal lines with numbers, and the value at the top."""
    step = _nice(top / _TICKS) if top > 0 else 1.0
    count = max(1, -(-int(top * 1000) // int(step * 1000))) if top > 0 else 1
    high = step * count
    body = []
    for number in range(count + 1):
        y = _TOP + height * (1 - number / count)
        body.append(f'<line x1="{_LEFT}" x2="{width:g}" y1="{y:.1f}" y2="{y:.1f}" class="rule"/>')
        body.append(_text(_LEFT - 6, y + 4, _short(step * number), "tick", "end"))
    return body, high


def _nice(value: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is at least ``value``, and whole from 1 on."""
    power = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 1.0
    while power / 10 >= value > 0 and value < 1:
        power /= 10
    return next((power * factor for factor in (1, 2, 5, 10) if power * factor >= value), power * 10)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def stacked_bars(bars: Sequence[Bar], label: str, *, height: float = 180, width: float = WIDTH) -> str:
    """Draw columns side by side. Series are CSS classes ``s-<name>``."""
    axis, high = _axis(max((sum(h for _, h in bar.parts) for bar in bars), default=0), height, width)
    step = (width - _LEFT) / max(1, len(bars))
    thick = max(1.0, min(step * 0.8, 36))
    body = list(axis)
    longest = 7 * max((len(bar.label) for bar in bars), default=1) + 12
    every = max(1, -(-longest // max(1, int(step))))
    for number, bar in enumerate(bars):
        x = _LEFT + step * number + (step - thick) / 2
        y = _TOP + height
        rects = []
        for series, part in bar.parts:
            tall = height * part / high
            y -= tall
            rects.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{thick:.1f}" height="{tall:.1f}" class="s-{series}"/>')
        body.append(f"<g>{_title(bar.title)}{''.join(rects)}</g>")
        if bar.label and number % every == 0:
            body.append(_text(x + thick / 2, _TOP + height + 18, bar.label, "tick", "middle"))
    return _svg(_TOP + height + _BOTTOM, body, label, width)


def steps(points: Sequence[Point], ends: Sequence[str], label: str, *, height: float = 140) -> str:
    """Draw a value over time that is valid until the next point, with a dot for each. See :func:`timeline`."""
    axis, high = _axis(max((point.y for point in points), default=0), height)
    body = list(axis)
    dot = 2.5 if len(points) <= 120 else 1.4
    places = [(_LEFT + 6 + (WIDTH - _LEFT - 12) * p.x, _TOP + height * (1 - p.y / high)) for p in points]
    path = "".join(f"H{x:.1f}V{y:.1f}" for x, y in places[1:])
    if places:
        body.append(f'<path d="M{places[0][0]:.1f},{places[0][1]:.1f}{path}" class="line"/>')
    for point, (x, y) in zip(points, places, strict=True):
        body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{dot:g}" class="s-balance">{_title(point.title)}</circle>')
    body += _moments(ends, _LEFT + 6, WIDTH - 6, _TOP + height + 18)
    return _svg(_TOP + height + _BOTTOM, body, label)


def timeline(marks: Sequence[tuple[float, str, str]], ends: Sequence[str], label: str) -> str:
    """Draw marks on a line: (position from 0 to 1, series, title).

    ``ends`` are labels at equal distances, the first at the left end and the last at the right end.
    """
    body = [f'<line x1="8" x2="{WIDTH - 8}" y1="34" y2="34" class="axis"/>']
    for place, series, title in marks:
        x = 12 + (WIDTH - 24) * place
        mark = f'<rect x="{x - 2.5:.1f}" y="14" width="5" height="40" rx="2" class="s-{series} mark"/>'
        body.append(f"<g>{_title(title)}{mark}</g>")
    return _svg(84, [*body, *_moments(ends, 12, WIDTH - 12, 76)], label)


def _moments(names: Sequence[str], left: float, right: float, y: float) -> list[str]:
    """Draw labels below a time axis."""
    last = max(1, len(names) - 1)
    anchors = ["start", *["middle"] * (len(names) - 2), "end"]
    return [
        _text(left + (right - left) * number / last, y, name, "tick", anchor)
        for number, (name, anchor) in enumerate(zip(names, anchors, strict=False))
    ]


def grid(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell]]], label: str) -> str:
    """Draw rows of cells with names at the left and above. It has its natural width, and the page scrolls it."""
    left = min(320, 24 + 7 * max((len(name) for name, _ in rows), default=0))
    room = (WIDTH - left) / max(1, len(columns))
    texts = max((len(cell.text) for _, cells in rows for cell in cells), default=0)
    wide = max(_CELL_MIN, min(64.0, room), 0.0 if texts <= 1 else 7.0 * texts + 8)
    has_text, space = wide >= _CELL_TEXT_MIN, 1.0 if wide > 10 else 0.5
    tall = 20.0
    head = 20.0
    body = []
    longest = max((len(name) for name in columns), default=0)
    every = max(1, -(-(7 * longest + 8) // int(wide)))  # names must not overlap
    for number, name in enumerate(columns):
        x = left + wide * (number + 0.5)
        if number % every == 0 and (number == 0 or x + 3.5 * len(name) <= left + wide * len(columns) + 4):
            body.append(_text(x, 14, name, "tick", "middle"))
    for row, (name, cells) in enumerate(rows):
        y = head + tall * row
        body.append(
            f'<rect x="{left:.1f}" y="{y + 1:.1f}" width="{wide * len(columns):.1f}" height="18" class="lane"/>'
        )
        body.append(_text(left - 8, y + 14, name, "name", "end"))
        for column, cell in enumerate(cells):
            if cell.kind:
                x = left + wide * column
                text = _text(x + wide / 2, y + 14, cell.text, _ink(cell.weight), "middle") if has_text else ""
                body.append(
                    f"<g>{_title(cell.title)}"
                    f'<rect x="{x + space:.1f}" y="{y + 1:.1f}" width="{wide - 2 * space:.1f}" height="18" rx="2" '
                    f'class="c-{cell.kind}"{_strength(cell.weight)}/>'
                    f"{text}</g>"
                )
    width = max(float(WIDTH), left + wide * len(columns) + 8)
    return _svg(head + tall * len(rows) + 8, body, label, width).replace("<svg ", f'<svg style="width:{width:g}px" ', 1)


def _strength(weight: float) -> str:
    return "" if weight >= 1 else f' opacity="{0.12 + 0.88 * weight:.2f}"'


def _ink(weight: float) -> str:
    """Return the class of a cell's text. On a pale cell it has the colour of the page's text."""
    return "incell" if weight >= 0.65 else "onpale"
