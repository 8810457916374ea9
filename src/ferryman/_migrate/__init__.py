"""Move key groups while the stream flows: a pure state machine, its strategies, and the orders to move in.

Nothing here does I/O. `machine` is told what happened and says what the next epoch looks like and what is to be
copied; `strategies` says in which respects the known protocols differ; `orders` says what goes first.
Calls `_model` and `_routing`.
"""
