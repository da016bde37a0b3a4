"""Requests about groups and transactions from outside."""
