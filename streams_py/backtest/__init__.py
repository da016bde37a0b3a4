"""The assignor backtest: recorded rebalances decided again, by any assignor, with any settings.

:mod:`~streams_py.backtest.inputs` says what a recorded situation is,
:mod:`~streams_py.backtest.kernel` what is done with it, :mod:`~streams_py.backtest.scores` what is
measured. None of that needs Spark; :mod:`~streams_py.spark.backtest` spreads it over cores and machines.
"""
