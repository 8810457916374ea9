"""A model of the engine on which the autoscaler, the migration machine and policies run without Spark: seeded and fast.

`loads` say what comes in; `engine_model` what an epoch costs; `simulated_cluster` is the hosts and who is where;
`simulation` lets them run in simulated time.
"""
