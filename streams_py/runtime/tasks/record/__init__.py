"""The path of a record through a task, from its source to its sinks."""
