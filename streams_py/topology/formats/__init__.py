"""Bytes of records that only the application itself reads: changes, foreign keys, waiting records of outer joins."""
