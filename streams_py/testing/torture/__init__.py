"""Fault-injection runs ("torture") of an application on a real cluster, and the check of its output."""

from streams_py.testing.torture.faults import FAULTS
from streams_py.testing.torture.run import Plan, Result, Torture

__all__ = ["FAULTS", "Plan", "Result", "Torture"]
