"""Whatever is Spark's private matter, or differs between its versions, behind small functions named for what they do.

No other module may use a name of pyspark that begins with an underscore, or one of its undocumented modules
(`tests/project/test_spark_private.py`). With a new version of Spark, look here first: each function says where it was
tried. `start` is for when there is no session yet, `session` asks a running one; the others are named after their
subject.
"""
