"""The telemetry report: one HTML file out of a folder of tables, without Spark, without a network."""
