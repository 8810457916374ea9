"""Read intervals as Spark writes them: in its API, and in its settings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ferryman._model.errors import InvalidConfiguration

_UNITS = {"ms": 0.001, "millisecond": 0.001, "s": 1.0, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
_SETTING_UNITS = {"": 0.001, "us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


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
    found = _read(text, _UNITS) if isinstance(text, str) else None
    if found is None:
        raise InvalidConfiguration(f"{text!r} is not an interval. Write it as '5 seconds' or '500 milliseconds'.")
    return found


def setting_seconds(text: str) -> float:
    """Read an interval as Spark's settings have it, where a bare number is milliseconds; infinite if it is none.

    Examples
    --------
    >>> setting_seconds("3s"), setting_seconds("50ms"), setting_seconds("20"), setting_seconds("soon")
    (3.0, 0.05, 0.02, inf)
    """
    found = _read(text.lower(), _SETTING_UNITS)
    return math.inf if found is None else found


def _read(text: str, units: Mapping[str, float]) -> float | None:
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*)\s*([a-z]*)\s*", text)
    if found is None:
        return None
    unit = units.get(found[2], units.get(found[2].removesuffix("s")) if len(found[2]) > 2 else None)
    return None if unit is None else float(found[1]) * unit
