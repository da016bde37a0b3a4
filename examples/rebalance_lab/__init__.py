"""From a live group to a choice of assignor: history, telemetry, laboratory (``python -m examples.rebalance_lab``)."""
