"""An application tortured on a real cluster: processes killed, stopped, cut off; and what became of it."""

from streams_py.testing.torture.faults import FAULTS
from streams_py.testing.torture.run import Plan, Result, Torture

__all__ = ["FAULTS", "Plan", "Result", "Torture"]
