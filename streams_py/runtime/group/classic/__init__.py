"""The classic group: its rounds, and the leader that assigns tasks."""
