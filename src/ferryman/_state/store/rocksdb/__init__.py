"""The rocksdb backend: state of any type, larger than memory, in a few RocksDBs per store.

RocksDB lets one process open a database at a time. So a store has several, the groups that came together in
one each, and the processes of a host hand them to one another: whoever needs one keeps it open until another
process asks for it. `store` does what the contract says, with `environment` (the share this process has in a
store, and the thread that answers those who ask), `database` (one RocksDB, and whose it is), `wake_up` (how to
ask), `which_database` (how many there are, and which groups share one), `ledger` (at which epoch and in which
database each group is) and `options` (how much memory it may take).
"""
