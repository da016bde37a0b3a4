"""The assignor backtest: recorded rebalances are decided again, by any assignor, with any settings.

:mod:`~streams_py.backtest.inputs` defines a recorded situation, :mod:`~streams_py.backtest.kernel` evaluates it, and
:mod:`~streams_py.backtest.scores` defines the scores. This package does not need Spark.
:mod:`~streams_py.spark.backtest` distributes the work over cores and machines.
"""
