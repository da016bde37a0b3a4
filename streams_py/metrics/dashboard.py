"""The Grafana dashboard of this library."""

from __future__ import annotations

from importlib import resources


def dashboard() -> str:
    """Return the JSON to import into Grafana (Dashboards, Import). It requires a Prometheus data source."""
    return (resources.files(__package__) / "dashboard.json").read_text(encoding="utf-8")
