"""The checkpoint directory: deltas, manifests, snapshots, retention. Together with the stores, all disk I/O."""
