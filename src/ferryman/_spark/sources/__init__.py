"""Sources for Spark, and how Spark cuts their data."""
