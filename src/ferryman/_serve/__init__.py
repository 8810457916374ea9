"""State on the network: the state host of an executor's host, and how to call it.

`state_host` is the process that serves and takes main copies, `launch` starts it where a task runs, `client` calls it,
`wire` says what goes over the line. Calls `_log` and `_state`; knows nothing of Spark.
"""
