"""Read a checkpoint from outside: which epochs are kept, what is read of a state or of changes, and in which parts."""
