"""Look at a checkpoint from outside: verify it, examine its files, describe it."""
