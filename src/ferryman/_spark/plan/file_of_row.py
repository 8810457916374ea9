"""Have each row bring along which file it is from, where a micro-batch has several.

Spark packs the largest files into the first partitions, so the order of partitions says nothing. Within a file its
pieces do come in order. So each row has the hash of its file's name, and the task that puts the rows in order is told
that of the files (`_log.spark_log.file_order`). A batch of one file, and every other source, pays nothing.

Spark knows the file of a row only until the row has been through Python, a shuffle or a cache.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ferryman._engine.routing_columns import FILE
from ferryman._spark.compat.session import plan_json

_CLASS = re.compile(r'"class":"[\w.$]*?(\w+)\$?"')
# What a plan must not have in it if a row is to know its file at the end: what does not take and give row by row.
_FORGETS = re.compile(
    r"\w*(Python|Pandas|Arrow)\w*|\w*(Join|Aggregate|Sort|Window|Distinct|Limit)|(Repartition|Rebalance|Deduplicate)\w*"
)


def knows_its_file(frame: DataFrame) -> bool:
    """Tell whether the rows of a DataFrame still know which file they are from, as far as its own steps go."""
    try:
        classes = set(_CLASS.findall(plan_json(frame)))
    except Exception:
        # Not every plan can be written down; then nothing is promised.
        return False
    return not any(_FORGETS.fullmatch(name) for name in classes)


def with_file(frame: DataFrame) -> DataFrame:
    """Add the hash of the name of the file that each row is from, unless it is there."""
    return frame if FILE in frame.columns else frame.withColumn(FILE, F.xxhash64(F.input_file_name()))
