"""What the task of an operator that goes by windows reads beside the panes of its rows, and when it has to again.

Panes are looked for only when the watermark has come to where some window ends. When that is next is the least of what
the tasks say, and tasks of the next epoch are told; so an epoch in which nothing ends costs what its rows cost.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ferryman._engine.control import Control
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._operator.run.panes import Ints, Panes, Sessions
from ferryman._operator.run.window_runner import ROWS, WindowRunner
from ferryman._routing.share import Share
from ferryman._state.keys import Keys, distinct, joined
from ferryman._state.store.contract import HASH, Store
from ferryman._state.words import from_words, one_array, to_words


def with_panes(spec: OperatorSpec, control: Control, keys: Keys, rows: pa.Table, store: Store, share: Share) -> Keys:
    """Add to the panes that have rows those that windows which end need, or which have changed."""
    panes = spec.time.panes
    assert panes is not None, "it goes by windows"
    found = [keys]
    if looks(spec, control, rows):
        assert control.watermark_ms is not None, "something is over"
        bound = pa.scalar(panes.reach(control.watermark_ms * 1000), spec.key.fields.types[0])
        kept = store.before(share.kept, bound)
        if len(share.shared):
            kept = kept.filter(pa.array(share.owns(kept.column(HASH).to_numpy())))
        columns = [kept.column(name) for name in spec.key.fields.names]
        found.append(Keys.of(spec.key, kept.column(HASH).to_numpy(), columns))
    if isinstance(panes, Panes) and panes.whole and len(keys):
        changed = keys.take(distinct(keys)[1])
        pane, *others = changed.columns()
        places, starts = panes.beside(to_words(pane))
        columns = [from_words(starts, pane.type, None), *(column.take(pa.array(places)) for column in others)]
        found.append(Keys.of(spec.key, changed.hash[places], columns))
    return joined(found)


def looks(spec: OperatorSpec, control: Control, rows: pa.Table) -> bool:
    """Tell whether some window may be over, and has panes that no row has come for."""
    until, panes = control.watermark_ms, spec.time.panes
    if until is None:
        return False
    if control.due_ms is not None and control.due_ms <= until:
        return True
    # A session that would be over already may be part of one that is not.
    return isinstance(panes, Sessions) and bool((panes.over(_late(spec, rows)) <= until * 1000).any())


def without_over(spec: OperatorSpec, late_ms: int, rows: pa.Table) -> pa.Array:
    """Tell of rows whether a window that they fall into still takes them."""
    assert spec.time.panes is not None, "it goes by windows"
    return pa.array(spec.time.panes.over(_late(spec, rows)) > late_ms * 1000)


def next_window(spec: OperatorSpec, control: Control, *, looked: bool, made_us: int | None) -> int | None:
    """Give a time, in milliseconds, before which no window ends or is forgotten; None if there is none.

    Parameters
    ----------
    looked
        Whether the task has looked for panes in this epoch.
    made_us
        That of the windows it has had to do with.
    """
    panes = spec.time.panes
    assert panes is not None, "it goes by windows"
    times = [] if made_us is None else [made_us]
    # Of groups that wait nobody has looked at the panes: until they are there, what was known before holds.
    if looked and control.watermark_ms is not None and not control.held:
        times.append(panes.next_event(control.watermark_ms * 1000))
    elif control.due_ms is not None:
        times.append(control.due_ms * 1000)
    return -(-min(times) // 1000) if times else None


def rows_of(spec: OperatorSpec, table: pa.Table) -> int:
    """Count rows, also of partials, which stand for several."""
    if isinstance(spec.runner, WindowRunner) and spec.runner.combined:
        return int(np.sum(table.column(ROWS).to_numpy()))
    return int(table.num_rows)


def _late(spec: OperatorSpec, rows: pa.Table) -> Ints:
    """Give by what rows are late."""
    name = spec.time.late
    assert name is not None, "windows say when rows are late"
    return to_words(one_array(rows.column(name), rows.schema.field(name).type))
