"""The lmdb backend: state of any type, one LMDB environment per store.

`store` does what the contract says, with `ledger` (which epoch each group is at), `environment` (the
open database) and `long_keys` (keys longer than LMDB takes).
"""
