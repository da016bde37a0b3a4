"""The parts of the leader's assign step, one file each; ``ARCHITECTURE.md`` has their order."""
