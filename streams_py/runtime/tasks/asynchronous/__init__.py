"""Asynchronous calls: functions that process records outside of their task's thread."""
