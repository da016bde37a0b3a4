"""Faults of the simulator: the kinds, their effects, and hostile members."""
