"""Runnable examples. Each is one short file; its docstring says what to look at."""
