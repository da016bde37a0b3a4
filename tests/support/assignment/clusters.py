"""Clusters whose tasks a test places itself."""

from __future__ import annotations

from streams_py.assignment.assignors.cluster import Cluster


def place_active(cluster: Cluster, task: int, client: int) -> None:
    """Make the client the active host of a task that has none."""
    cluster.active[task] = client
    cluster.count[client] += 1
