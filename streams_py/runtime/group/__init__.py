"""The group that shares the tasks: communication between a stream thread and its membership."""
