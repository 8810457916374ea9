"""What runs on Spark: the only package that imports pyspark. It may call every other package."""
