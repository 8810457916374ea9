"""The fleet of sensors: which rows there are, for the stream and for the batch that checks it."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferryman.sources import generated, generator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = "fleet.json"
_PREFIX = "sensor-"
# The fewest epochs of a run.
_EPOCHS = 16


@dataclass(frozen=True)
class Fleet:
    """Describe the rows of a demo; the same description gives the same rows, streamed or as a batch.

    Parameters
    ----------
    sensors
        How many sensors there are.
    rate
        Readings per second of all of them together.
    rows
        Readings in all.
    rooms
        How many rooms the sensors are in.
    seed
        Chooses the readings.
    start
        When the first reading is due, in ISO format; None until the first driver is ready for it.
    """

    sensors: int
    rate: float
    rows: int
    rooms: int = 40
    seed: int = 7
    start: str | None = None

    @classmethod
    def load(cls, out: Path) -> Fleet:
        """Read the fleet of a demo's directory."""
        return cls(**json.loads((out / _FILE).read_text()))

    def save(self, out: Path) -> None:
        """Write the fleet into a demo's directory, whole or not at all: a driver may die at any moment."""
        draft = out / f".{_FILE}"
        draft.write_text(json.dumps(asdict(self)))
        os.replace(draft, out / _FILE)

    def stream(self, spark: SparkSession) -> DataFrame:
        """Stream the readings at the fleet's rate, whether or not anybody is there to read them."""
        # A bound on an epoch, so that there is a middle to kill in even where a slow machine begins with a backlog.
        per_epoch = math.ceil(self.rows / _EPOCHS)
        return generator(spark, **self._options(), rate=self.rate, start=self.start, rows_per_epoch=per_epoch)

    def batch(self, spark: SparkSession) -> DataFrame:
        """Read all readings at once, in the columns of `readings`: what they are does not depend on when."""
        return readings(generated(spark, **self._options()), self.rooms)

    def _options(self) -> dict[str, Any]:
        return {"keys": self.sensors, "rows": self.rows, "seed": self.seed, "key_prefix": _PREFIX}


def readings(rows: DataFrame, rooms: int) -> DataFrame:
    """Name the columns, and give every sensor a room."""
    room = f"CAST(substring(key, {len(_PREFIX) + 1}) AS INT) % {rooms}"
    return rows.selectExpr("id", "key AS sensor", f"concat('room-', {room}) AS room", "value")
