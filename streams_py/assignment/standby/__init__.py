"""Placement of standby tasks."""
