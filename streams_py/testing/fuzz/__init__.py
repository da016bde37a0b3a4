"""Damaged bytes for everything that reads bytes of others, and what must not come of it.

The invariant, in one sentence: whatever the bytes, a reader returns a value or raises one of its documented errors,
soon, and without holding much more memory than the bytes themselves; and a value that was read can be written and
reads as itself.

:data:`TARGETS` names the readers, :func:`fuzz_target` feeds one of them. Inputs start from good ones: recorded vectors
where a checkout has them, otherwise values made up here. The same seed gives the same inputs, in any process.
"""

from __future__ import annotations

from streams_py.testing.fuzz.inputs import find_vectors, inputs_for
from streams_py.testing.fuzz.run import TARGETS, fuzz_target
from streams_py.testing.fuzz.target import Finding, FuzzResult, Target

__all__ = ["TARGETS", "Finding", "FuzzResult", "Target", "find_vectors", "fuzz_target", "inputs_for"]
