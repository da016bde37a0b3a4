"""The commands ``streams-py connect``."""
