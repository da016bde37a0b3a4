"""Reads a client's stores, and finds the instance that has them."""
