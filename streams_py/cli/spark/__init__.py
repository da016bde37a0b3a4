"""Commands that need Spark: telemetry, backtests, and applications run over their history."""
