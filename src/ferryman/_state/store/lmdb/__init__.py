"""The lmdb backend: state of any type, one LMDB environment per store.

`store` does what the contract says, with `ledger` (which epoch each group is at), `environment` (the
open database), `codec` (rows to msgpack and back) and `record_keys` (keys as LMDB wants them).
"""
