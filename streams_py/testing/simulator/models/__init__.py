"""What stands in for the world: group coordinator, consumer, cluster, local state, restoring, and time."""
