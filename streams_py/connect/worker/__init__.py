"""A worker: its thread (the herder), its running jobs, and its requests."""
