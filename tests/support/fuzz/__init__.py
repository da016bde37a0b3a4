"""Fuzz tests of every decoder and parser of untrusted bytes.

For any input, a reader must return a value or raise one of its documented errors, in bounded time and memory. If a
value was read, writing it and reading it again must give an equal value.

:data:`TARGETS` contains the readers, and :func:`fuzz_target` runs one of them. Inputs are derived from valid ones:
recorded vectors if the checkout contains them, and values created here. The same seed gives the same inputs in any
process.
"""

from __future__ import annotations

from tests.support.fuzz.inputs import find_vectors, inputs_for
from tests.support.fuzz.run import TARGETS, fuzz_target
from tests.support.fuzz.target import Finding, FuzzResult, Target

__all__ = ["TARGETS", "Finding", "FuzzResult", "Target", "find_vectors", "fuzz_target", "inputs_for"]
