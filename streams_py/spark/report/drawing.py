"""Small charts as SVG text. Colours are names of CSS variables, so that one drawing serves light and dark.

All text that goes in is escaped here, and nowhere else: what a chart is given may come from users (tags, host names).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

__all__ = ["Bar", "Cell", "Point", "grid", "lines", "stacked_bars", "timeline"]

WIDTH: Final = 960
_LEFT: Final = 56
_BOTTOM: Final = 28
_TOP: Final = 8
_TICKS: Final = 4


class Point(NamedTuple):
    """``x`` from 0 to 1; ``y`` in units of the axis."""

    x: float
    y: float
    title: str


class Bar(NamedTuple):
    """One column: parts from the bottom up, as (name of the series, height)."""

    parts: Sequence[tuple[str, float]]
    title: str
    label: str = ""


class Cell(NamedTuple):
    """A place in a grid: ``kind`` is a CSS class, ``text`` what stands in it, if there is room."""

    kind: str
    text: str
    title: str


def _svg(height: float, body: Sequence[str], label: str, width: float = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label, quote=True)}">'
        + "".join(body)
        + "</svg>"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _axis(top: float, height: float, unit: str) -> tuple[list[str], float]:
    """Horizontal lines with figures; (drawing, the value at the top)."""
    step = _nice(top / _TICKS) if top > 0 else 1.0
    count = max(1, -(-int(top * 1000) // int(step * 1000))) if top > 0 else 1
    high = step * count
    body = []
    for number in range(count + 1):
        y = _TOP + height * (1 - number / count)
        body.append(f'<line x1="{_LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="rule"/>')
        body.append(_text(_LEFT - 6, y + 4, f"{_figure(step * number)}{unit}", "tick", "end"))
    return body, high


def _nice(value: float) -> float:
    """1, 2 or 5 times a power of ten, not below ``value``; whole numbers from 1 on."""
    power = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 1.0
    while power / 10 >= value > 0 and value < 1:
        power /= 10
    return next((power * factor for factor in (1, 2, 5, 10) if power * factor >= value), power * 10)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def stacked_bars(bars: Sequence[Bar], label: str, *, unit: str = "", height: float = 180) -> str:
    """Columns side by side. Series are CSS classes ``s-<name>``."""
    axis, high = _axis(max((sum(h for _, h in bar.parts) for bar in bars), default=0), height, unit)
    step = (WIDTH - _LEFT) / max(1, len(bars))
    width = max(1.0, min(step * 0.8, 36))
    body = list(axis)
    every = max(1, -(-len(bars) // 12))
    for number, bar in enumerate(bars):
        x = _LEFT + step * number + (step - width) / 2
        y = _TOP + height
        rects = []
        for series, part in bar.parts:
            tall = height * part / high
            y -= tall
            rects.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{tall:.1f}" class="s-{series}"/>')
        body.append(f"<g>{_title(bar.title)}{''.join(rects)}</g>")
        if bar.label and number % every == 0:
            body.append(_text(x + width / 2, _TOP + height + 18, bar.label, "tick", "middle"))
    return _svg(_TOP + height + _BOTTOM, body, label)


def lines(series: Mapping[str, Sequence[Point]], ends: tuple[str, str], label: str, *, height: float = 160) -> str:
    """Lines over time, with a dot for each point; ``ends`` name the first and the last moment."""
    axis, high = _axis(max((p.y for points in series.values() for p in points), default=0), height, "")
    body = list(axis)
    for name, points in series.items():
        places = [(_LEFT + 6 + (WIDTH - _LEFT - 12) * p.x, _TOP + height * (1 - p.y / high)) for p in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        body.append(f'<polyline points="{path}" class="line l-{name}"/>')
        for point, (x, y) in zip(points, places, strict=True):
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="s-{name}">{_title(point.title)}</circle>')
    below = _TOP + height + 18
    body += [_text(_LEFT, below, ends[0], "tick"), _text(WIDTH - 4, below, ends[1], "tick", "end")]
    return _svg(_TOP + height + _BOTTOM, body, label)


def timeline(marks: Sequence[tuple[float, str, str]], ends: tuple[str, str], label: str) -> str:
    """Marks on a line: (place from 0 to 1, series, what it is)."""
    body = [f'<line x1="8" x2="{WIDTH - 8}" y1="34" y2="34" class="axis"/>']
    for place, series, title in marks:
        x = 12 + (WIDTH - 24) * place
        body.append(
            f'<g>{_title(title)}<rect x="{x - 3:.1f}" y="14" width="6" height="40" rx="2" class="s-{series}"/></g>'
        )
    body += [_text(8, 76, ends[0], "tick"), _text(WIDTH - 8, 76, ends[1], "tick", "end")]
    return _svg(84, body, label)


def grid(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell]]], label: str) -> str:
    """Rows of cells with names at the left and above; as wide as it has to be, the page lets it scroll."""
    left = min(320, 24 + 7 * max((len(name) for name, _ in rows), default=0))
    wide = 18.0 if len(columns) > 40 else max(18.0, min(64.0, (WIDTH - left) / max(1, len(columns))))
    tall = 20.0
    head = 20.0
    body = []
    longest = max((len(name) for name in columns), default=0)
    every = max(1, -(-(7 * longest + 8) // int(wide)))  # names must not run into each other
    for number, name in enumerate(columns):
        if number % every == 0:
            body.append(_text(left + wide * (number + 0.5), 14, name, "tick", "middle"))
    for row, (name, cells) in enumerate(rows):
        y = head + tall * row
        body.append(_text(left - 8, y + 14, name, "name", "end"))
        for column, cell in enumerate(cells):
            if cell.kind:
                x = left + wide * column
                body.append(
                    f"<g>{_title(cell.title)}"
                    f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{wide - 2:.1f}" height="{tall - 2:.1f}" rx="3" '
                    f'class="c-{cell.kind}"/>{_text(x + wide / 2, y + 14, cell.text, "incell", "middle")}</g>'
                )
    width = max(float(WIDTH), left + wide * len(columns) + 8)
    return _svg(head + tall * len(rows) + 8, body, label, width).replace("<svg ", f'<svg style="width:{width:g}px" ', 1)
