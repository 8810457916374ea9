"""Ferryman gives PySpark streams state that can move while the stream flows.

The public modules only re-export. Below them, each package rests only on those before it:
`_model` (records, errors) <- `_routing` <- `_state` (keys, stores, aggregates) <- `_operator` <- `_log`
(the checkpoint directory) <- `_spark` (the only one that knows pyspark) <- `_cli`.
"""

from ferryman import aggregates, autoscaling, errors, sinks, sources
from ferryman._engine.progress import EpochProgress
from ferryman._operator.declare.operator import ArrowOperator, Batch, Operator
from ferryman._operator.declare.side_outputs import side
from ferryman._operator.declare.two_inputs import TwoInputOperator
from ferryman._operator.types.collections import (
    Aggregating,
    Counter,
    Deque,
    Graph,
    List,
    Map,
    PerInstance,
    Queue,
    Reducing,
    Set,
)
from ferryman._operator.types.synopses import BloomFilter, CountMin, DecayedRate, HyperLogLog, Reservoir, TDigest
from ferryman._operator.types.value import Value
from ferryman._operator.types.windows import SessionWindow, SlidingWindow, Span, TumblingWindow
from ferryman._routing.sites import Site
from ferryman._scale.options import Autoscale
from ferryman._scale.pool_options import Pool
from ferryman._spark.api.ferry import Ferry
from ferryman._spark.api.job import Job
from ferryman._spark.api.keyed import KeyedStream
from ferryman._spark.api.stream import Output, Stream
from ferryman._spark.session.builder_settings import configure
from ferryman._spark.session.session import session
from ferryman.aggregates import approx_distinct, avg, count, first, last, stddev, variance

__version__ = "0.1.0"

__all__ = [
    "Aggregating",
    "Counter",
    "Deque",
    "Graph",
    "List",
    "Map",
    "Queue",
    "Reducing",
    "SessionWindow",
    "Set",
    "Site",
    "SlidingWindow",
    "Span",
    "TumblingWindow",
    "ArrowOperator",
    "Batch",
    "BloomFilter",
    "CountMin",
    "DecayedRate",
    "HyperLogLog",
    "Reservoir",
    "TDigest",
    "PerInstance",
    "Autoscale",
    "EpochProgress",
    "Ferry",
    "Job",
    "KeyedStream",
    "Operator",
    "Output",
    "Pool",
    "Stream",
    "TwoInputOperator",
    "Value",
    "aggregates",
    "approx_distinct",
    "autoscaling",
    "avg",
    "configure",
    "count",
    "errors",
    "first",
    "last",
    "session",
    "side",
    "sinks",
    "sources",
    "stddev",
    "variance",
]
