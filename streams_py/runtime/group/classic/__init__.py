"""The classic group: its members, and the leader that assigns tasks."""
