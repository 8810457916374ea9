"""State of one key at a time, as Python sees it: values, lists, maps, timers, and what they changed.

A cell reads the epoch before and gathers changes in memory; nothing is written until the operator has run on
all its keys. `Cells` makes the cells of an operator and turns what they gathered into columns.
"""

from ferryman._operator.cells.cells import Cells
from ferryman._operator.cells.key_at_hand import Focus
from ferryman._operator.cells.records import Record
from ferryman._operator.cells.variables import (
    ListVariable,
    MapVariable,
    ValueVariable,
    Variable,
    group_table,
    tables_of,
)

__all__ = [
    "Cells",
    "Focus",
    "ListVariable",
    "MapVariable",
    "Record",
    "ValueVariable",
    "Variable",
    "group_table",
    "tables_of",
]
