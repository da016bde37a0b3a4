"""Models of the environment: group coordinator, consumer, cluster, local state, restores and time."""
