"""Read intervals as Spark writes them."""

from __future__ import annotations

import math
import re

from ferryman._model.errors import InvalidConfiguration

_UNITS = {"ms": 0.001, "millisecond": 0.001, "s": 1.0, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


def seconds(text: str | float | None) -> float | None:
    """Read an interval as Spark writes it.

    Examples
    --------
    >>> seconds("500 milliseconds"), seconds("2 minutes"), seconds(None)
    (0.5, 120.0, None)
    """
    if text is None:
        return None
    if isinstance(text, (int, float)) and not isinstance(text, bool) and 0 <= text < math.inf:
        return text
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*)\s*([a-z]+?)s?\s*", text) if isinstance(text, str) else None
    if found is None or found[2] not in _UNITS:
        raise InvalidConfiguration(f"{text!r} is not an interval. Write it as '5 seconds' or '500 milliseconds'.")
    return float(found[1]) * _UNITS[found[2]]
