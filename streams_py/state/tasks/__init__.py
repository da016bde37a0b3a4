"""The stores of one task, of the global thread, and their changelog topics."""
