"""The Spark plan of an epoch, and what it is made of."""
