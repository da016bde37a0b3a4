"""The assignment laboratory: recorded rebalances decided again, by any assignor, with any settings.

:mod:`~streams_py.spark.laboratory.inputs` says what a recorded situation is,
:mod:`~streams_py.spark.laboratory.kernel` what is done with it, :mod:`~streams_py.spark.laboratory.scores` what is
measured. None of that needs Spark; :mod:`~streams_py.spark.laboratory.on_spark` spreads it over cores and machines.
"""
