"""Sources of rows: whatever Spark reads is one; these are the ones Ferryman adds.

`generator` streams seeded rows that can be read again at any time; `generated` reads the same rows as
a batch, which is what an independent check of a stream's results needs.
"""

from ferryman._spark.sources.generator import generated, generator

__all__ = ["generated", "generator"]
