"""The ingest log: rows of a source that cannot be read again, on disk before they are acknowledged.

`blocks` is the format, `ingest_files` finds and reads rows by their offsets, `ingest_log` writes, `group_commit` has
many writers share one sync. Calls `_model`, `_os` and the lock of `_log.files`; knows nothing of Spark.
"""
