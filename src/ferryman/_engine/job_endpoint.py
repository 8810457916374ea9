"""What a shell can ask of a running job, on top of `_serve.endpoint`."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ferryman._migrate.hot_keys import HotKey
from ferryman._migrate.load_report import InstanceLoad
from ferryman._migrate.reconfiguration import Preview, Reconfiguration
from ferryman._model.routing import Pin
from ferryman._scale.decision import Decision
from ferryman._scale.named_policies import options_of
from ferryman._scale.options import Autoscale

if TYPE_CHECKING:
    from ferryman._serve.endpoint import Endpoint

log = logging.getLogger("ferryman")

Request = Mapping[str, Any]


class TypedKeys:
    """Keys as somebody typed them into a shell: text, of whatever type the operators' keys are."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys


class RunningJob(Protocol):
    """What is asked of a job; `Job` says what each of it means."""

    name: str

    @property
    def epoch(self) -> int:
        """Give the newest epoch."""

    @property
    def instances(self) -> int:
        """Give the number of instances."""

    @property
    def rows_waiting(self) -> int | None:
        """Give how many rows wait in Kafka; None where that is not known."""

    def plan(
        self,
        instances: Any = None,
        *,
        groups: Any = None,
        keys: Any = None,
        to: Any = None,
        operator: Any = None,
        by: str = "rows",
    ) -> Preview:
        """Say what a change would do."""

    def rescale(self, instances: int, *, by: str = "rows", strategy: str = "live") -> Reconfiguration:
        """Change the number of instances."""

    def move(
        self, groups: Any = None, to: Any = None, *, keys: Any = None, operator: Any = None, strategy: str = "live"
    ) -> Reconfiguration:
        """Give key groups, or single keys, to an instance, a host or a site."""

    def unpin(self, keys: Any = None, *, operator: Any = None, strategy: str = "live") -> Reconfiguration:
        """Have keys go back to where their groups are."""

    def rebalance(self, *, by: str = "rows", strategy: str = "live") -> Reconfiguration:
        """Even out the load."""

    def abort(self) -> None:
        """Give up the change under way."""

    def history(self) -> list[Reconfiguration]:
        """List the changes of this run."""

    def pins(self) -> list[Pin]:
        """List the pinned keys."""

    def hot_keys(self) -> list[HotKey]:
        """List the hot keys."""

    def sites(self) -> list[InstanceLoad]:
        """List the instances by where they are."""

    def autoscale(self, options: Autoscale | None) -> None:
        """Have the job choose its number of instances by itself, or not any more."""

    def scaling(self) -> str:
        """Tell what the autoscaler has decided last, and what holds the job back."""

    def decisions(self) -> list[Decision]:
        """List what the autoscaler has decided."""


class JobEndpoint:
    """Have a job listen, and say where; a job that cannot is none the worse.

    Parameters
    ----------
    job
        The job.
    checkpoint
        Where its checkpoint is.
    """

    def __init__(self, job: RunningJob, checkpoint: str) -> None:
        from ferryman._serve.endpoint import Endpoint
        from ferryman._serve.registry import Running, announce

        self._job = job
        self._endpoint: Endpoint | None = None
        self._file: Path | None = None
        requests = (
            self.status,
            self.plan,
            self.rescale,
            self.move,
            self.unpin,
            self.rebalance,
            self.abort,
            self.history,
            self.pins,
            self.hot_keys,
            self.sites,
            self.autoscale,
            self.decisions,
        )
        try:
            self._endpoint = Endpoint({request.__name__: request for request in requests})
            where, token = self._endpoint.location, self._endpoint.token
            self._file = announce(Running(job.name, checkpoint, os.getpid(), where, token))
        except Exception as error:
            log.warning("job %r cannot be changed from the shell: %s", job.name, error)

    def close(self) -> None:
        """Listen no more."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink()
        if self._endpoint is not None:
            self._endpoint.shutdown()

    # -- requests: JSON values in, JSON values out ---------------------------------------------------

    def status(self, request: Request) -> dict[str, Any]:
        """Say how the job is."""
        current = [change for change in self._job.history() if not change.over]
        change = f"{current[0].kind}: {current[0].phase}" if current else ""
        return {
            "job": self._job.name,
            "epoch": self._job.epoch,
            "instances": self._job.instances,
            "change": change,
            "waiting": self._job.rows_waiting,
        }

    def plan(self, request: Request) -> dict[str, Any]:
        """Say what a change would do."""
        found = self._job.plan(
            request.get("instances"),
            groups=request.get("groups"),
            keys=_typed(request),
            to=request.get("to"),
            operator=request.get("operator"),
            by=request.get("by") or "rows",
        )
        return {
            "instances": list(found.instances),
            "moves": [vars(move) for move in found.moves],
            "bytes": found.bytes,
            "between": found.between,
            "seconds": found.seconds,
            "by": found.by,
            "load": list(found.load),
            "text": str(found),
        }

    def rescale(self, request: Request) -> dict[str, Any]:
        """Change the number of instances."""
        by = request.get("by") or "rows"
        return _waited(self._job.rescale(request["instances"], by=by, strategy=request["strategy"]), request)

    def move(self, request: Request) -> dict[str, Any]:
        """Give key groups, or single keys, to an instance, a host or a site."""
        change = self._job.move(
            request.get("groups"),
            request["to"],
            keys=_typed(request),
            operator=request.get("operator"),
            strategy=request["strategy"],
        )
        return _waited(change, request)

    def unpin(self, request: Request) -> dict[str, Any]:
        """Have keys go back to where their groups are."""
        change = self._job.unpin(_typed(request), operator=request.get("operator"), strategy=request["strategy"])
        return _waited(change, request)

    def rebalance(self, request: Request) -> dict[str, Any]:
        """Even out the load."""
        by = request.get("by") or "rows"
        return _waited(self._job.rebalance(by=by, strategy=request["strategy"]), request)

    def abort(self, request: Request) -> dict[str, Any]:
        """Give up the change under way."""
        current = [change for change in self._job.history() if not change.over]
        self._job.abort()
        if not current:
            return {"text": "no change is under way"}
        return {"text": f"{current[0].kind}: {current[0].phase}"}

    def history(self, request: Request) -> list[dict[str, Any]]:
        """List the changes of this run."""
        return [change.facts() for change in self._job.history()]

    def pins(self, request: Request) -> list[dict[str, Any]]:
        """List the pinned keys."""
        return [asdict(pin) for pin in self._job.pins()]

    def hot_keys(self, request: Request) -> list[dict[str, Any]]:
        """List the hot keys."""
        return [asdict(key) for key in self._job.hot_keys()]

    def sites(self, request: Request) -> list[dict[str, Any]]:
        """List the instances by where they are."""
        return [asdict(instance) for instance in self._job.sites()]

    def autoscale(self, request: Request) -> dict[str, Any]:
        """Have the job choose its number of instances by itself, or not any more; with neither, tell how it does."""
        if request.get("off"):
            self._job.autoscale(None)
        elif chosen := request.get("options"):
            self._job.autoscale(options_of(chosen))
        return {"text": self._job.scaling()}

    def decisions(self, request: Request) -> list[dict[str, Any]]:
        """List what the autoscaler has decided."""
        return [decision.json() | {"text": str(decision)} for decision in self._job.decisions()]


def _typed(request: Request) -> TypedKeys | None:
    return TypedKeys(request["keys"]) if request.get("keys") else None


def _waited(change: Reconfiguration, request: Request) -> dict[str, Any]:
    change.wait(request.get("wait") or 0)
    return change.facts()
