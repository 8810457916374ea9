"""Run a user's Spark `StatefulProcessor`, or a function of `applyInPandasWithState`, unchanged.

`handle` and `states` look to the user's code as Spark's own do; `run` calls it; `grouped` is the API beside Spark's.
"""
