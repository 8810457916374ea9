"""The files of a checkpoint: the directory, the records in it, who may write, and reading what nobody vouches for."""
