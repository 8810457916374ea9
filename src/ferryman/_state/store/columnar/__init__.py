"""The columnar backend: narrow typed state in memory-mapped column pages, one file per key group.

`store` does what the contract says, with `ledger` (which epoch each group is at), `mains` (the mapped
files), `codec` (Arrow columns to 64-bit cells and back) and `kernels` (the loops over all of them).
"""
