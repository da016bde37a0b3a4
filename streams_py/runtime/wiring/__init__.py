"""Builds the parts of a client and connects them."""
