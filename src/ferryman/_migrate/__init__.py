"""Move key groups while the stream flows.

Pure: `machine` is told what happened and says what the next epoch looks like and what is to be done; `strategies` says
in which respects the known protocols differ; `orders` says what goes first; `planning` and `lanes` say what goes where.
On top of these the `coordinator` gives every epoch its layout and takes plans; `copier` has state hosts carry one out.

What runs epochs is behind the `Layout` that it is handed. Calls `_model`, `_routing`, `_log` and `_serve`.
"""
