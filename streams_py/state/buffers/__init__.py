"""Buffers of suppressed records and of join records that wait for a partner."""
