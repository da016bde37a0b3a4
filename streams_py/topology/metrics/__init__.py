"""Metrics of processor nodes."""
