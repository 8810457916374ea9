"""State: keys in canonical form, and the stores that hold the main copies of key groups.

`keys` rests on `words` and `kernels`; `store` rests on `keys`. Nothing here knows Spark.
"""
