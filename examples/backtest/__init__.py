"""From a live group to a choice of assignor: history, telemetry, backtest (``python -m examples.backtest``)."""
