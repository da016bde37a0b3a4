"""The project's text is plain English: no phrases that readers have to translate, no overlong sentences in the pages.

The phrases below are always wrong here. Each has a plain replacement, which the failure prints.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).resolve().parents[2]

_HELD: Final = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/assignment",
    "docs/backtest.md",
    "docs/benchmarks.md",
    "docs/coming-from-java.md",
    "docs/compatibility.md",
    "docs/connect.md",
    "docs/dashboard.md",
    "docs/exactly-once.md",
    "docs/features.md",
    "docs/guides",
    "docs/index.md",
    "docs/installation.md",
    "docs/internals",
    "docs/limits.md",
    "docs/metrics.md",
    "docs/operations.md",
    "docs/queries.md",
    "docs/reference",
    "docs/releasing.md",
    "docs/serdes.md",
    "docs/snapshots.md",
    "docs/spark-history.md",
    "docs/telemetry.md",
    "docs/tutorial.md",
    "protocol",
    "CHANGELOG.md",
    "benchmarks",
    "examples",
    "run.py",
    "streams_py/__init__.py",
    "streams_py/adapters",
    "streams_py/assignment",
    "streams_py/backtest",
    "streams_py/cli",
    "streams_py/clients",
    "streams_py/config",
    "streams_py/connect",
    "streams_py/dashboard",
    "streams_py/errors.py",
    "streams_py/events",
    "streams_py/history",
    "streams_py/inspection",
    "streams_py/http",
    "streams_py/leader",
    "streams_py/member",
    "streams_py/runtime",
    "streams_py/metrics",
    "streams_py/ports",
    "streams_py/query",
    "streams_py/registry",
    "streams_py/serdes",
    "streams_py/spark",
    "streams_py/state",
    "streams_py/system",
    "streams_py/telemetry",
    "streams_py/testing",
    "streams_py/topology",
    "tests/broker/adapters",
    "tests/broker/records",
    "tests/broker/runtime",
    "tests/broker/security",
    "tests/broker/testing",
    "tests/browser",
    "tests/conformance",
    "tests/contract",
    "tests/differential",
    "tests/docs",
    "tests/embedded",
    "tests/packaging",
    "tests/spark",
    "tests/support",
    "tests/unit/adapters",
    "tests/unit/assignment",
    "tests/unit/backtest",
    "tests/unit/cli",
    "tests/unit/config",
    "tests/unit/connect",
    "tests/unit/dashboard",
    "tests/unit/events",
    "tests/unit/fuzz",
    "tests/unit/history",
    "tests/unit/inspection",
    "tests/unit/http",
    "tests/unit/leader",
    "tests/unit/member",
    "tests/unit/metrics",
    "tests/unit/ports",
    "tests/unit/query",
    "tests/unit/registry",
    "tests/unit/runtime",
    "tests/unit/serdes",
    "tests/unit/spark",
    "tests/unit/state",
    "tests/unit/system",
    "tests/unit/telemetry",
    "tests/unit/testing",
    "tests/unit/topology",
)
"""Files and folders whose text has been converted. Add a folder when it is converted."""

_PHRASES: Final = {
    r"\b(?:is|are|was|were|be) no (?!longer\b|more than\b|less than\b)\w+": "is not a ..., has no ..., there is no ...",
    r"\b(?:is|are|was) (?-i:none)\b": "is not one, there is no ...",
    r"\bnobody\b": "no member, no thread, no caller",
    r"\bany more\b": "no longer",
    r"\bfor ever\b": "forever, indefinitely",
    r"\b(?:goes|going|went) on\b": "continues",
    r"\bwho(?:m)?ever\b": "the caller, the member, the thread",
    r"\bit is (?:looked|asked|said|told|seen)\b": "name who looks, asks or says",
    r"\bso (?:often|long|much)\b(?! as\b)": "the interval, the time, the amount",
    r"\banew\b": "again, newly",
    r"\b(?:be|is) had\b": "is available",
    r"\blooks? whether\b": "checks whether",
    r"\bnot got\b": "does not have",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\b(?:is|are) told apart\b": "is distinguished",
    r"\bwithout goodbye\b": "without leaving the group",
}
_WORDS_MAX: Final = 45
"""Maximum number of words in a sentence of a page. Most sentences have about 20."""


def _files(places: tuple[str, ...]) -> Iterator[Path]:
    for place in places:
        path = _ROOT / place
        yield from [path] if path.is_file() else sorted({*path.rglob("*.py"), *path.rglob("*.md")})


def _text_of_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of comments and strings of a Python file, with their line numbers."""
    reader = io.StringIO(path.read_text(encoding="utf-8")).readline
    for token in tokenize.generate_tokens(reader):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield from enumerate(token.string.splitlines(), token.start[0])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if path.suffix == ".py":
        yield from _text_of_code(path)
    else:
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)


def _suspects(lines: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"line {number}: {found[0]!r}: write {plain}"
        for number, line in lines
        for phrase, plain in _PHRASES.items()
        for found in re.finditer(phrase, line, re.IGNORECASE)
    ]


def _sentences(page: str) -> Iterator[str]:
    """Yield the sentences of a page's paragraphs and list items, without code, tables, headings and HTML comments."""
    page = re.sub(r"^```.*?^```|<!--.*?-->", "", page, flags=re.MULTILINE | re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", page):
        text = " ".join(paragraph.split())
        if text and not text.startswith(("|", "#", "<", "!")):
            yield from re.split(r"(?<=[.?!:;])\s+", text)


def test_phrases_find_what_they_are_for() -> None:
    lines = ["# It is no thread, and nobody waits any more.", "It is no longer used.", '"so long as it lives"']
    assert [line.partition(":")[0] for line in _suspects(enumerate(lines, 1))] == ["line 1"] * 3


def test_sentences_of_a_page_leave_out_code_and_tables() -> None:
    page = "# Title\n\nOne sentence. Another\none.\n\n```python\ncode\n```\n\n| a | table |\n\n- an item\n- a second\n"
    assert list(_sentences(page)) == ["One sentence.", "Another one.", "- an item", "- a second"]


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(_ROOT))) for path in _files(_HELD)])
def test_text_is_plain_english(path: Path) -> None:
    assert _suspects(_lines(path)) == []


@pytest.mark.parametrize(
    "page", [pytest.param(path, id=str(path.relative_to(_ROOT))) for path in _files(_HELD) if path.suffix == ".md"]
)
def test_sentences_of_pages_are_short(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [one for one in _sentences(text) if len(one.split()) > _WORDS_MAX] == []
