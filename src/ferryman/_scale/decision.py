"""What an autoscaler has decided, with the figures that led to it. JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ferryman._model.json_values import MOST_GROUPS, MOST_TIME_MS, Misshapen, flag, mapped, text, whole
from ferryman._scale.metrics_window import MetricsWindow

# "scale out" and "scale in" change something; "held" is a wish that was not followed; "ignored" a policy that said
# nothing sensible; "done" and "refused" tell what became of a change.
KINDS = ("scale out", "scale in", "held", "ignored", "done", "refused")
_CHANGES = ("scale out", "scale in")
OUTCOMES = ("done", "refused")
Figure = int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision.

    Attributes
    ----------
    time_ms, epoch
        When, in milliseconds since 1970, and after which epoch.
    kind
        One of `KINDS`.
    before, after
        How many instances there were, and how many were decided on, or wanted.
    why
        The reason, in a sentence.
    bottleneck
        What holds the job back, and why that is thought.
    figures
        What it was decided by.
    dry_run
        Whether it was only said.
    """

    time_ms: int
    epoch: int
    kind: str
    before: int
    after: int
    why: str
    bottleneck: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    dry_run: bool = False

    @property
    def changes(self) -> bool:
        """Tell whether it is one for another number of instances."""
        return self.kind in _CHANGES

    def __str__(self) -> str:
        would = "would " if self.dry_run and self.changes else ""
        if self.changes or self.kind in OUTCOMES:
            return f"{would}{self.kind}, {self.before} -> {self.after} instances: {self.why}"
        wanted = f" (wanted: {self.after})" if self.after != self.before else ""
        return f"{self.kind}, {self.before} instances{wanted}: {self.why}"

    def json(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return asdict(self)

    @classmethod
    def parse(cls, raw: Any) -> Decision:
        """Read a decision back from JSON."""
        values = mapped(raw, "a decision")
        if unknown := set(values) - set(cls.__dataclass_fields__):
            raise Misshapen(f"a decision has no {sorted(unknown)[0]!r}")
        decision = cls(**values)
        whole(decision.time_ms, "time_ms", high=MOST_TIME_MS)
        whole(decision.epoch, "epoch")
        for name in ("before", "after"):
            whole(getattr(decision, name), name, high=MOST_GROUPS)
        if text(decision.kind, "kind") not in KINDS:
            raise Misshapen(f"kind is none of {', '.join(KINDS)}")
        text(decision.why, "why")
        text(decision.bottleneck, "bottleneck")
        flag(decision.dry_run, "dry_run")
        for name, figure in mapped(decision.figures, "figures").items():
            if not (figure is None or isinstance(figure, (int, float, str))):
                raise Misshapen(f"figure {name!r} is neither a number nor text")
        return decision


def figures(window: MetricsWindow | None, coefficient: float) -> dict[str, Figure]:
    """Give the figures that a decision stands on, rounded to what is worth reading."""
    if window is None:
        return {}
    told: dict[str, Figure] = {
        "rows_per_s": round(window.rate, 1),
        "capacity_rows_per_s": None if window.capacity is None else round(window.capacity, 1),
        "utilisation": round(window.utilisation, 3),
        "epoch_ms": round(window.took_s * 1000, 1),
        "interval_ms": round(window.interval_s * 1000, 1),
        "busy_ms": round(window.busy_s * 1000, 1),
        "busy_if_even_ms": round(window.even_s * 1000, 1),
        "fixed_ms": round(window.fixed_s * 1000, 1),
        "sinks_ms": round(window.sinks_s * 1000, 1),
        "overhead_ms": round(window.overhead_s * 1000, 1),
        "backlog_rows": window.backlog,
        "late_ms": None if window.late_ms is None else round(window.late_ms, 1),
        "state_bytes_per_s": round(window.delta_bytes, 1),
        "scalability": round(coefficient, 3),
        "window_s": round(window.seconds, 2),
        "epochs": window.epochs,
    }
    for name, (rate, busy) in window.operators.items():
        told[f"{name}: rows_per_s_of_work"] = round(rate, 1)
        told[f"{name}: busy"] = round(busy, 3)
    return told
