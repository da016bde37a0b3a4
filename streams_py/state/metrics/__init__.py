"""Metrics of stores."""
