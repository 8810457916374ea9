"""`ferryman demo`: a fleet of sensors, a worker and the driver killed in the middle, exact totals at the end.

A supervisor that runs no Spark itself starts the driver (`pipeline`), kills it and starts it again; the second
driver ends with `check`, which computes everything anew as a plain Spark batch.
`fleet` says which rows there are, `operators` what is done with them. `supervise` watches and kills
(`child`), `history` keeps what happened, `show` and `chart` tell it. Uses the public API, and
`_log` to look into the checkpoint.
"""
