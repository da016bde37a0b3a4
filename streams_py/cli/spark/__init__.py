"""Commands that need Spark: telemetry, backtests, applications over their history."""
