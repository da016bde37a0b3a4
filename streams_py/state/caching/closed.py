"""What a closed cache has in place of its dirty keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["ClosedStore"]


class ClosedStore(dict[Any, None]):
    """Takes the place of the dirty keys of a closed store, so that the path of a record needs no check."""

    def __init__(self, refuse: Callable[[], None]) -> None:
        super().__init__()
        self._refuse = refuse

    def pop(self, *_: object) -> Any:
        self._refuse()
