"""Run a user's Spark `StatefulProcessor`, or a function of `applyInPandasWithState`, unchanged.

`processor_handle` and `states` look to the user's code as Spark's own do; `processor_runner` calls it; `grouped` is
the API beside Spark's.
"""
