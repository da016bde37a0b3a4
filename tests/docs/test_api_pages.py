"""The API pages have every public name once, with a text for each name and member."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from pathlib import Path

import griffe
import pytest

from tests.docs.public_names import entries, found, listed, pages, public, text_of

_HEADING = re.compile(r'<h[2-6] id="([^"]+)"')


def _addresses(site: Path, page: str) -> set[str]:
    return set(_HEADING.findall((site / "reference" / "api" / page / "index.html").read_text(encoding="utf-8")))


def test_every_public_name_is_on_exactly_one_page() -> None:
    counts = Counter(found(name).canonical_path for name in listed())
    assert public() - set(counts) == set(), "add ::: lines to a page below docs/reference/api"
    assert {name for name, count in counts.items() if count > 1} == set()


def test_a_page_lists_names_and_no_modules() -> None:
    assert [name for name in listed() if found(name).is_module] == []


@pytest.mark.parametrize("page", pages())
def test_every_name_and_member_has_an_address(site: Path, page: str) -> None:
    addresses = _addresses(site, page)
    tops = pages()[page]
    names = {name for name, entry in entries() if entry.docstring and (name in tops or name.rpartition(".")[0] in tops)}
    assert names - addresses == set()


def test_every_name_and_member_has_a_text() -> None:
    all_entries = list(entries())
    assert len(all_entries) > 1000
    assert [name for name, entry in all_entries if not text_of(entry)] == []


def test_functions_that_take_a_duration_say_in_which_unit() -> None:
    silent = []
    for name, entry in entries():
        if entry.is_function and any("Duration" in str(parameter.annotation) for parameter in entry.parameters):
            texts = [entry.docstring, entry.parent.docstring if entry.parent else None]
            if not any(text and re.search(r"timedelta|\bms\b", text.value) for text in texts):
                silent.append(name)
    assert silent == []


def test_overloads_are_shown(site: Path) -> None:
    text = (site / "reference" / "api" / "dsl" / "index.html").read_text(encoding="utf-8")
    entry = text.partition('id="streams_py.StreamsBuilder.stream"')[2].partition("<h3")[0]
    function = found("streams_py.StreamsBuilder.stream")
    assert isinstance(function, griffe.Function | griffe.Alias)
    assert entry.count("doc-signature") >= len(function.overloads or ()) > 2


@pytest.mark.parametrize("page", pages())
def test_page_shows_no_machinery(site: Path, page: str) -> None:
    html = (site / "reference" / "api" / page / "index.html").read_text(encoding="utf-8")
    text = unescape(re.sub(r"<[^>]+>", "", html.partition("<article")[2].partition("</article>")[0]))
    for machinery in (":class:", ":meth:", ":func:", "``", "autoref", "::\n"):
        assert machinery not in text, machinery


def test_names_in_signatures_and_in_roles_of_docstrings_are_links(site: Path) -> None:
    addresses = {f"#{address}" for page in pages() for address in _addresses(site, page)}
    links = Counter[str]()
    for page in pages():
        html = (site / "reference" / "api" / page / "index.html").read_text(encoding="utf-8")
        links.update(f"#{target}" for target in re.findall(r'<a class="autorefs[^>]*href="[^"#]*#([^"]+)"', html))
    assert set(links) <= addresses
    assert links["#streams_py.KStream"] > 5
    assert links["#streams_py.CustomStateStore"] > 0
