"""The record cache, and the key-value stores above which it merges updates between two commits."""
