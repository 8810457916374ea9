"""Put the rows of several files of one micro-batch into the order of the files' age.

Spark packs the largest files into the first partitions, so the order of partitions says nothing. Within a file its
pieces do come in order. So where a batch has several files, each row brings the hash of its file's name along, and
the task that sorts the rows knows how old each file is. A batch of one file, and every other source, pays nothing.

Spark knows the file of a row only until the row has been through Python, a shuffle or a cache.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import xxhash
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

FILE = "_ferryman_file"

_CLASS = re.compile(r'"class":"[\w.$]*?(\w+)\$?"')
# What a plan must not have in it if a row is to know its file at the end: what does not take and give row by row.
_FORGETS = re.compile(
    r"\w*(Python|Pandas|Arrow)\w*|\w*(Join|Aggregate|Sort|Window|Distinct|Limit)|(Repartition|Rebalance|Deduplicate)\w*"
)


def knows_its_file(frame: DataFrame) -> bool:
    """Tell whether the rows of a DataFrame still know which file they are from, as far as its own steps go."""
    try:
        plan = frame._jdf.queryExecution().analyzed()
        classes = set(_CLASS.findall(plan.toJSON()))
    except Exception:
        # Not every plan can be written down; then nothing is promised.
        return False
    return not any(_FORGETS.fullmatch(name) for name in classes)


def with_file(frame: DataFrame) -> DataFrame:
    """Add the hash of the name of the file that each row is from, unless it is there."""
    return frame if FILE in frame.columns else frame.withColumn(FILE, F.xxhash64(F.input_file_name()))


def hashes(paths: Sequence[str]) -> tuple[int, ...]:
    """Hash the names of files as `with_file` does."""
    found = (xxhash.xxh64_intdigest(path.encode(), seed=42) for path in paths)
    return tuple(one - (1 << 64) if one >= 1 << 63 else one for one in found)
