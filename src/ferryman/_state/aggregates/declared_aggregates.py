"""What a user declares: an aggregate is its kind, its column and its parameters.

A declaration checks nothing by itself: only `compile` knows the columns, and it reports the faults of
all declarations at once. Calls nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_LG_K = 12


@dataclass(frozen=True)
class Aggregate:
    """Declare one aggregate; made by the functions of `ferryman.aggregates`.

    Parameters
    ----------
    kind : str
        Which aggregate: the name of the function that declares it.
    column : str or None
        The input column; None where rows are counted.
    parameters : tuple of (str, float)
        What else the kind needs, such as ``lg_k``.

    by : str or None
        The column that chooses the row, of the kinds that have one.

    Examples
    --------
    >>> from ferryman.aggregates import avg
    >>> avg("value")
    Aggregate(kind='avg', column='value', parameters=(), by=None)
    """

    kind: str
    column: str | None = None
    parameters: tuple[tuple[str, float], ...] = ()
    by: str | None = None

    @property
    def kept(self) -> str:
        """Say what the state holds, as far as its columns do not show it."""
        numbers = [f"{number}" for name, number in self.parameters if name == "n"]
        return " ".join([self.kind, *numbers])


def count(column: str | None = None) -> Aggregate:
    """Count rows or, of a column, the values that are not null.

    Examples
    --------
    >>> from ferryman.aggregates import count
    >>> count().column is None, count("value").column
    (True, 'value')
    """
    return Aggregate("count", column)


def sum(column: str) -> Aggregate:
    """Sum a column: integers as long, floats as double; null where there is no value.

    A sum of integers that leaves 64 bits fails the epoch, as in Spark's ANSI mode.

    Examples
    --------
    >>> from ferryman.aggregates import sum
    >>> sum("value").kind
    'sum'
    """
    return Aggregate("sum", column)


def min(column: str) -> Aggregate:
    """Keep the least value; NaN counts as greater than any other number, as in Spark.

    Examples
    --------
    >>> from ferryman.aggregates import min
    >>> min("value").kind
    'min'
    """
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    """Keep the greatest value; NaN counts as greater than any other number, as in Spark.

    Examples
    --------
    >>> from ferryman.aggregates import max
    >>> max("value").kind
    'max'
    """
    return Aggregate("max", column)


def avg(column: str) -> Aggregate:
    """Average a column, as double; null where there is no value.

    Examples
    --------
    >>> from ferryman.aggregates import avg, mean
    >>> avg("value") == mean("value")
    True
    """
    return Aggregate("avg", column)


mean = avg


def variance(column: str) -> Aggregate:
    """Give the sample variance; null below two values.

    Examples
    --------
    >>> from ferryman.aggregates import variance
    >>> variance("value").kind
    'variance'
    """
    return Aggregate("variance", column)


def stddev(column: str) -> Aggregate:
    """Give the sample standard deviation; null below two values.

    Examples
    --------
    >>> from ferryman.aggregates import stddev
    >>> stddev("value").kind
    'stddev'
    """
    return Aggregate("stddev", column)


def first(column: str) -> Aggregate:
    """Keep the first value that is not null, in the source's order.

    Examples
    --------
    >>> from ferryman.aggregates import first
    >>> first("value").kind
    'first'
    """
    return Aggregate("first", column)


def last(column: str) -> Aggregate:
    """Keep the last value that is not null, in the source's order.

    Examples
    --------
    >>> from ferryman.aggregates import last
    >>> last("value").kind
    'last'
    """
    return Aggregate("last", column)


def approx_distinct(column: str, lg_k: int = DEFAULT_LG_K) -> Aggregate:
    """Estimate how many distinct values there are, with a HyperLogLog sketch per key.

    Needs the extra ``sketches``. The relative error is about ``1.04 / sqrt(2 ** lg_k)``, 1.6 % by
    default; a sketch grows to ``2 ** lg_k`` bytes, and keys with few values take far less.

    Parameters
    ----------
    column : str
        The input column.
    lg_k : int
        Base-2 logarithm of the number of registers, 7 to 21.

    Examples
    --------
    >>> from ferryman.aggregates import approx_distinct
    >>> approx_distinct("user", lg_k=14).parameters
    (('lg_k', 14),)
    """
    return Aggregate("approx_distinct", column, (("lg_k", lg_k),))


def max_by(column: str, by: str) -> Aggregate:
    """Keep the value of a column where another is greatest: of the latest row, or the dearest. Of equals, the first.

    Examples
    --------
    >>> from ferryman.aggregates import max_by
    >>> max_by("price", "time").column
    'price'
    """
    return Aggregate("max_by", column, by=by)


def min_by(column: str, by: str) -> Aggregate:
    """Keep the value of a column where another is least. Of equals, the first.

    Examples
    --------
    >>> from ferryman.aggregates import min_by
    >>> min_by("price", "time").by
    'time'
    """
    return Aggregate("min_by", column, by=by)


def collect_list(column: str) -> Aggregate:
    """List all values that are not null, in the source's order.

    Examples
    --------
    >>> from ferryman.aggregates import collect_list
    >>> collect_list("page").kind
    'collect_list'
    """
    return Aggregate("collect_list", column)


def collect_set(column: str) -> Aggregate:
    """List the distinct values that are not null, in the order in which each came first.

    Examples
    --------
    >>> from ferryman.aggregates import collect_set
    >>> collect_set("page").kind
    'collect_set'
    """
    return Aggregate("collect_set", column)


def count_distinct(column: str) -> Aggregate:
    """Count the distinct values exactly; all of them are kept. `approx_distinct` keeps less.

    Examples
    --------
    >>> from ferryman.aggregates import count_distinct
    >>> count_distinct("user").kind
    'count_distinct'
    """
    return Aggregate("count_distinct", column)


def top(column: str, n: int) -> Aggregate:
    """List the n greatest values, the greatest first.

    Examples
    --------
    >>> from ferryman.aggregates import top
    >>> top("price", 10).kept
    'top 10'
    """
    return Aggregate("top", column, (("n", n),))


def bottom(column: str, n: int) -> Aggregate:
    """List the n least values, the least first.

    Examples
    --------
    >>> from ferryman.aggregates import bottom
    >>> bottom("price", 10).parameters
    (('n', 10),)
    """
    return Aggregate("bottom", column, (("n", n),))


def percentile(column: str, part: float) -> Aggregate:
    """Give the value below which a part of all values lies, exactly, as Spark's ``percentile``; all values are kept.

    Parameters
    ----------
    column : str
        The input column, of numbers.
    part : float
        From 0, the least value, to 1, the greatest; 0.5 gives the median.

    Examples
    --------
    >>> from ferryman.aggregates import percentile
    >>> percentile("latency", 0.99).parameters
    (('part', 0.99),)
    """
    return Aggregate("percentile", column, (("part", part),))


def median(column: str) -> Aggregate:
    """Give the value in the middle, exactly; all values are kept.

    Examples
    --------
    >>> from ferryman.aggregates import median, percentile
    >>> median("latency") == percentile("latency", 0.5)
    True
    """
    return percentile(column, 0.5)
