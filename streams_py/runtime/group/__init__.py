"""The group that shares the tasks: what a stream thread and its membership tell each other."""
