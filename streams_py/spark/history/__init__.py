"""The topology of an application over a history, on Spark: one task is one Spark partition."""
