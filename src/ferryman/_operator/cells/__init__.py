"""State of one key at a time, as Python sees it: values, lists, maps, timers, and what they changed.

A cell reads the epoch before and gathers changes in memory; nothing is written until the operator has run on
all its keys. `Variables` makes the cells of an operator and turns what they gathered into columns.
"""

from ferryman._operator.cells.declare import (
    ListVariable,
    MapVariable,
    Record,
    ValueVariable,
    Variable,
    group_table,
    tables_of,
)
from ferryman._operator.cells.focus import Focus
from ferryman._operator.cells.variables import Variables

__all__ = [
    "Focus",
    "ListVariable",
    "MapVariable",
    "Record",
    "ValueVariable",
    "Variable",
    "Variables",
    "group_table",
    "tables_of",
]
