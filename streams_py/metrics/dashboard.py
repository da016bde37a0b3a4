"""The Grafana dashboard that comes with the library."""

from __future__ import annotations

from importlib import resources

__all__ = ["dashboard"]


def dashboard() -> str:
    """Its JSON, to be imported into Grafana (Dashboards, Import). It asks for a Prometheus data source."""
    return (resources.files(__package__) / "dashboard.json").read_text(encoding="utf-8")
