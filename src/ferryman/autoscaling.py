"""Policies of the autoscaler, and the simulation to try them on, see docs/autoscaling.md."""

from ferryman._engine.autoscaling import recorded
from ferryman._scale.decision import Decision
from ferryman._scale.epoch_metrics import EpochMetrics, OperatorMetrics
from ferryman._scale.metrics_history import MetricsHistory
from ferryman._scale.metrics_window import MetricsWindow
from ferryman._scale.options import Autoscale
from ferryman._scale.policies import Policy, Schedule, Seep, TargetLatency, TrueRates, Wish
from ferryman._scale.simulation.engine_model import EngineModel
from ferryman._scale.simulation.loads import (
    Arrivals,
    Diurnal,
    FlashCrowd,
    Flat,
    Ramp,
    Recorded,
    Sawtooth,
    SlowLeak,
    Spike,
    Step,
)
from ferryman._scale.simulation.simulated_cluster import SimulatedCluster
from ferryman._scale.simulation.simulated_run import SimulatedPlan, SimulatedRun
from ferryman._scale.simulation.simulation import Simulation, replayed

__all__ = [
    "Autoscale",
    "Decision",
    "EpochMetrics",
    "MetricsHistory",
    "MetricsWindow",
    "OperatorMetrics",
    "Policy",
    "Schedule",
    "Seep",
    "TargetLatency",
    "TrueRates",
    "Wish",
    "Arrivals",
    "Diurnal",
    "FlashCrowd",
    "Flat",
    "Ramp",
    "Recorded",
    "Sawtooth",
    "SlowLeak",
    "Spike",
    "Step",
    "EngineModel",
    "SimulatedCluster",
    "SimulatedPlan",
    "SimulatedRun",
    "Simulation",
    "recorded",
    "replayed",
]
