"""Opens the stores of a task from their declarations."""
