"""What all comparisons with recorded vectors share."""

from __future__ import annotations

__all__ = ["NotSupportedCaseError"]


class NotSupportedCaseError(Exception):
    """The case exercises something that this library does not have; the text says what."""
