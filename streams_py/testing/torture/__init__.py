"""An application tortured on a real cluster: processes killed and stopped, connections cut; and what became of it."""

from streams_py.testing.torture.run import FAULTS, Plan, Result, Torture

__all__ = ["FAULTS", "Plan", "Result", "Torture"]
