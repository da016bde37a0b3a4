"""Paths of the worker's host that connectors may use: ``file.connectors.allowed.paths``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path


class AllowedPaths:
    """Allows files and folders below these folders. Resolves links before the comparison."""

    def __init__(self, folders: Sequence[str] = ()) -> None:
        self._folders = folders

    def problems(self, keys: Sequence[str], config: Mapping[str, str]) -> list[str]:
        """Return a sentence for each of these keys whose path is not allowed."""
        return [
            f"{key} = {config[key]!r} is not below a folder of file.connectors.allowed.paths "
            f"({', '.join(self._folders) or 'which is empty'}); set it on the workers"
            for key in keys
            if key in config and not self._has(config[key])
        ]

    def _has(self, path: str) -> bool:
        try:
            real = Path(os.path.realpath(path))
        except ValueError:  # a NUL character
            return False
        return any(real.is_relative_to(os.path.realpath(folder)) for folder in self._folders)
