"""A worker: its thread (the herder), the jobs it runs, and what can be asked of it."""
