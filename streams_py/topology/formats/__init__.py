"""Formats of records that only the application reads.

These are changes of tables, foreign keys, and waiting records of outer joins.
"""
