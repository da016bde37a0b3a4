"""Commits: when and how offsets are committed, and where reading starts."""
