"""Manifests that others wrote are read or refused with one error, so that older snapshots are tried."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.errors import SnapshotError
from streams_py.state.snapshots.manifest import Manifest, SnapshotFile, _digest  # other writers need the digest
from streams_py.state.snapshots.snapshots import _check_space  # the disk cannot be filled
from streams_py.state.snapshots.storage import TaskSnapshots, hash_of, open_storage
from tests.support.state.manifest import MANIFEST, OF


def written(content: Any) -> bytes:
    return json.dumps({"sha256": _digest(content), "snapshot": content}).encode()


def content_of(manifest: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(manifest.encode())["snapshot"]
    return found


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(content_of(MANIFEST))), VALUES)
def test_any_value_in_any_place_is_read_or_refused(field: str, value: Any) -> None:
    try:
        found = Manifest.decode(written({**content_of(MANIFEST), field: value}))
    except SnapshotError:
        return
    found.is_of(OF)


@given(st.binary())
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        Manifest.decode(data)


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -float("inf")])
def test_infinity_is_refused_as_a_manifest(number: float) -> None:
    for change in ({"taken_ms": number}, {"positions": [["t", 0, number]]}, {"files": {"CURRENT": ["0" * 64, number]}}):
        with pytest.raises(SnapshotError, match="cannot be read"):
            Manifest.decode(written({**content_of(MANIFEST), **change}))


def test_manifest_comes_back() -> None:
    assert Manifest.decode(MANIFEST.encode()) == MANIFEST


def test_download_stops_at_the_size_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    url = "memory://bounded"
    (tmp_path / "source").write_bytes(b"abc")
    file = hash_of(str(tmp_path / "source"))
    snapshots = TaskSnapshots(open_storage(url), "app", "0_0")
    snapshots.put_file(str(tmp_path / "source"), file, lambda: None)
    snapshots.get_file(file, str(tmp_path / "back"))
    storage = fsspec.filesystem("memory")
    remote = next(path for path in storage.find("/bounded") if path.endswith(file.sha256))
    storage.pipe_file(remote, bytes(50 << 20))
    monkeypatch.setattr(storage, "size", lambda path: file.size)  # what a hostile bucket announces
    with pytest.raises(SnapshotError, match="larger than the 3 bytes"):
        snapshots.get_file(file, str(tmp_path / "large"))
    assert (tmp_path / "large").stat().st_size < 10 << 20


@pytest.mark.parametrize(
    "url",
    ["s3x://user:hunter2@bucket/path", "nope://bucket/path?sig=hunter2", "nope://b/x?X-Amz-Signature=hunter2&a=1"],
)
def test_address_that_cannot_be_used_shows_no_credentials(url: str) -> None:
    from streams_py.errors import ConfigError

    with pytest.raises(ConfigError, match=r"state\.snapshot\.store") as caught:
        open_storage(url)
    assert "hunter2" not in str(caught.value)


def test_snapshot_that_is_larger_than_the_disk_is_skipped(tmp_path: Path) -> None:
    """A hostile bucket could otherwise fill the disk of all tasks."""
    free = shutil.disk_usage(tmp_path).free
    half = SnapshotFile("0" * 64, free // 2)
    _check_space(replace(MANIFEST, files={"a": half}), str(tmp_path))
    with pytest.raises(SnapshotError, match="of which a tenth is reserved"):
        _check_space(replace(MANIFEST, files={"a": half, "b": half}), str(tmp_path))


def test_file_with_a_negative_size_is_refused() -> None:
    files = {"a": ["0" * 64, 1 << 62], "b": ["0" * 64, -(1 << 62)]}
    with pytest.raises(SnapshotError, match="cannot be read"):
        Manifest.decode(written({**content_of(MANIFEST), "files": files}))
