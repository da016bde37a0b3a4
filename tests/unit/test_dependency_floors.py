"""No allowed version of a dependency has a known vulnerability, neither the lowest one nor the locked one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

_ROOT = Path(__file__).resolve().parents[2]

_FIXED = {
    "certifi": ("2024.7.4", "CVE-2024-39689: trusts a root that browsers have dropped"),
    "h11": ("0.16.0", "CVE-2025-43859: accepts malformed chunks, so requests can be smuggled past a proxy"),
    "orjson": ("3.11.6", "CVE-2025-67221: deeply nested values overflow the stack"),
    "protobuf": ("6.33.5", "CVE-2025-4565, CVE-2026-0994: nested messages exhaust the stack"),
    "pyarrow": ("23.0.1", "CVE-2026-25087: use after free while a file is read"),
    "starlette": ("1.3.1", "CVE-2025-54121, CVE-2025-62727, CVE-2026-48710, GHSA-82w8-qh3p-5jfq, GHSA-jp82-jpqv-5vv3"),
}
"""First version without the vulnerabilities, and their ids."""


def _requirements() -> dict[str, list[Requirement]]:
    """Return the requirements of the core, of each extra and of each development group."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = {
        "core": project["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
        **{f"group {name}": group for name, group in project["dependency-groups"].items()},
    }
    return {name: [Requirement(line) for line in lines] for name, lines in named.items()}


@pytest.mark.parametrize("package", _FIXED)
def test_lowest_version_has_no_known_hole(package: str) -> None:
    fixed, holes = _FIXED[package]
    found = {
        f"{where}: {one}": any(
            spec.operator in (">=", "==") and Version(spec.version) >= Version(fixed) for spec in one.specifier
        )
        for where, requirements in _requirements().items()
        for one in requirements
        if canonicalize_name(one.name) == package
    }
    assert found, f"no part of pyproject.toml requires {package}"
    assert all(found.values()), f"{holes}: {[where for where, is_high in found.items() if not is_high]}"


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-spark.lock"])
def test_locked_versions_have_no_known_hole(lock: str) -> None:
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", (_ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(pins) > 10
    below = [
        f"{name}=={version}: {holes}"
        for name, version in pins
        for fixed, holes in [_FIXED.get(canonicalize_name(name), ("0", ""))]
        if Version(version) < Version(fixed)
    ]
    assert below == []


def test_whoever_serves_http_names_the_parser() -> None:
    """uvicorn alone accepts any version of h11."""
    for where, requirements in _requirements().items():
        names = {canonicalize_name(one.name) for one in requirements}
        assert "uvicorn" not in names or "h11" in names or where == "group dev", where
