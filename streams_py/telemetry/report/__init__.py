"""The telemetry report: creates one HTML file from a folder of tables, without Spark and without a network."""
