"""Records whose functions wait: calls that run outside of their task's thread."""
