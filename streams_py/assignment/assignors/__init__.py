"""The built-in task assignors."""
