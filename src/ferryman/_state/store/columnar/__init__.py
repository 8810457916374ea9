"""The columnar backend: narrow typed state in memory-mapped column pages, two files per key group.

`store` does what the contract says, with `ledger` (which file and how much of it counts, at which epoch),
`files` (a main that is never changed, a delta that is only appended to), `codec` (Arrow columns to 64-bit
cells and back) and `kernels` (the loops over all of them).
"""
