"""What all comparisons with recorded vectors share."""

from __future__ import annotations


class NotSupportedCaseError(Exception):
    """The case needs a feature that this library does not have; the text names it."""
