"""The commands of ``streams-py connect``."""
