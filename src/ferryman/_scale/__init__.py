"""Decide how many instances a job should have.

Pure: a `metrics_history` is kept of what epochs told; `bottleneck` says what holds the job back; `policies` say how
many instances there should be; `guards` object; the `autoscaler` is told what happens and says what is to be done.
`options` is what a user can choose. `simulation/` is a model of a cluster on which policies can be tried.

Calls `_model`, and the simulation `_routing` and `_migrate`.
"""
