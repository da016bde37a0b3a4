"""What the leader does in one assign step, a file for each part of it, in the order of ``ARCHITECTURE.md``."""
