"""The stream thread: its loop, its states and the moves of its tasks."""
