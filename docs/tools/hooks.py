"""Hooks of MkDocs: the navigation follows the existing pages, and links that leave ``docs/`` stay inside the site.

Pages of the repository outside of ``docs/`` (``ARCHITECTURE.md``) become pages below ``project/``. Every other file
that a page links to (an example) is served unchanged below ``source/``.
"""

from __future__ import annotations

import os.path
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # MkDocs loads this file by its path
    sys.path.insert(0, str(ROOT))

from docs.tools.generated import GENERATED  # noqa: E402

PROJECT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "README.md", "protocol/README.md",
                 "examples/README.md", "tests/README.md")  # fmt: skip
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out pages that do not exist, and add pages that are not listed."""
    there = {path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")}
    there |= set(GENERATED) | {f"project/{page}" for page in PROJECT_PAGES if (ROOT / page).exists()}
    listed: set[str] = set()
    config.nav = _present(config.nav or [], there, listed)
    unlisted = sorted(page for page in there - listed if not page.startswith("project/"))
    if unlisted:
        config.nav.append({"More": unlisted})
    return config


def _present(entries: list[Any], there: set[str], listed: set[str]) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            inner = _present(below if isinstance(below, list) else [below], there, listed)
            if inner:
                kept.append({title: inner if isinstance(below, list) else below})
        elif entry in there:
            listed.add(entry)
            kept.append(entry)
    return kept


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages, pages from elsewhere in the repository, and the files that pages link to."""
    for name, write in GENERATED.items():
        files.append(File.generated(config, name, content=write()))
    for page in PROJECT_PAGES:
        if (ROOT / page).exists():
            files.append(File.generated(config, f"project/{page}", content=(ROOT / page).read_text("utf-8")))
    for file in list(files.documentation_pages()):
        for match in _LINK.finditer(file.content_string):
            target = _in_repository(file.src_uri, match[2]) or ""
            uri = _site_uri(target) if target else None
            if uri is None or not uri.startswith("source/") or files.get_file_from_path(uri) is not None:
                continue
            if (ROOT / target).is_file():
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files outside of ``docs/`` to their copies in the site, and remove comments for the test."""

    def rewritten(match: re.Match[str]) -> str:
        target = _in_repository(page.file.src_uri, match[2])
        if target is None:
            return match[0]
        home = _site_uri(target)
        if home is None:
            return match[0]
        relative = os.path.relpath(home, PurePosixPath(page.file.src_uri).parent.as_posix())
        return f"{match[1]}{relative}{match[3] or ''}{match[4]}"

    return _LINK.sub(rewritten, _COMMENT.sub("", markdown))


def _in_repository(src_uri: str, target: str) -> str | None:
    """Return the target of a link in the repository; None if it is a page of ``docs/``."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    outside = src_uri.startswith("project/")
    here = src_uri.removeprefix("project/") if outside else f"docs/{src_uri}"
    path = os.path.normpath(PurePosixPath(here).parent / target)
    return path if outside or not path.startswith("docs/") else None


def _site_uri(target: str) -> str | None:
    if target in PROJECT_PAGES:
        return f"project/{target}"
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if (ROOT / target).is_dir():
        readme = f"{target}/README.md".removeprefix("./")
        return f"project/{readme}" if readme in PROJECT_PAGES else None
    return f"source/{target}"
