"""`ferryman demo`: a fleet of sensors, a worker and the driver killed in the middle, exact totals at the end.

Three processes take part, under a supervisor that runs no Spark itself: the driver (`pipeline`), killed and
started again; and `check`, which computes everything as a plain Spark batch meanwhile, and compares at the end.
`fleet` says which rows there are, `operators` what is done with them. `supervise` watches and kills
(`child`, `processes`), `history` keeps what happened, `show` and `chart` tell it. Uses the public API, and
`_log` to look into the checkpoint.
"""
