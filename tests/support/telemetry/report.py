"""A reader that checks the HTML of a report."""

from __future__ import annotations

from html.parser import HTMLParser

EVIL = "<script>alert('x')</script>&\"'"


class Checked(HTMLParser):
    """Balanced tags, and everything the page loads."""

    VOID = frozenset({"meta", "rect", "line", "circle", "path"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag
