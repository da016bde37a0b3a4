"""A replacement for the dirty keys of a closed cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ClosedStore(dict[Any, None]):
    """A dict that replaces the dirty keys of a closed store and refuses writes, so that writes need no extra check."""

    def __init__(self, refuse: Callable[[], None]) -> None:
        super().__init__()
        self._refuse = refuse

    def pop(self, *_: object) -> Any:
        self._refuse()
