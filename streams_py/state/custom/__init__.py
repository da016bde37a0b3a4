"""Stores that users make themselves, as stores of a task; and the one of that kind that comes with the library."""
