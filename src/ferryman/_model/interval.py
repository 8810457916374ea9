"""Read intervals as Spark's API has them."""

from __future__ import annotations

import math
import re

from ferryman._model.errors import InvalidConfiguration

_UNITS = {"ms": 0.001, "millisecond": 0.001, "s": 1.0, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


def seconds(text: str | float | None) -> float | None:
    """Read an interval as Spark's API has it.

    Examples
    --------
    >>> seconds("500 milliseconds"), seconds("500 ms"), seconds("2 minutes"), seconds(None)
    (0.5, 0.5, 120.0, None)
    """
    if text is None:
        return None
    if isinstance(text, (int, float)) and not isinstance(text, bool) and 0 <= text < math.inf:
        return text
    found = _read(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidConfiguration(f"{text!r} is not an interval. Write it as '5 seconds' or '500 milliseconds'.")
    return found


def _read(text: str) -> float | None:
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*)\s*([a-z]*)\s*", text)
    if found is None:
        return None
    unit = _UNITS.get(found[2], _UNITS.get(found[2].removesuffix("s")) if len(found[2]) > 2 else None)
    return None if unit is None else float(found[1]) * unit
