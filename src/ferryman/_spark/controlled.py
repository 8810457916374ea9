"""What a shell can ask of a running job, on top of `_serve.control`."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferryman._spark.change import Reconfiguration
from ferryman._spark.changing import TypedKeys

if TYPE_CHECKING:
    from ferryman._serve.control import Control
    from ferryman._spark.job import Job

log = logging.getLogger("ferryman")

Request = Mapping[str, Any]


class Controlled:
    """Have a job listen, and say where; a job that cannot is none the worse."""

    def __init__(self, job: Job) -> None:
        from ferryman._serve.control import Control
        from ferryman._serve.registry import Running, announce

        self._job = job
        self._host: Control | None = None
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
        )
        try:
            self._host = Control({one.__name__: one for one in requests})
            checkpoint = job._runner.checkpoint.directory.uri
            one = Running(job.name, checkpoint, os.getpid(), self._host.location, self._host.token)
            self._file = announce(one)
        except Exception as error:
            log.warning("job %r cannot be changed from the shell: %s", job.name, error)

    def close(self) -> None:
        """Listen no more."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink()
        if self._host is not None:
            self._host.shutdown()

    # -- requests: JSON values in, JSON values out ---------------------------------------------------

    def status(self, request: Request) -> dict[str, Any]:
        """Say how the job is."""
        current = [one for one in self._job.history() if not one.over]
        change = f"{current[0].kind}: {current[0].phase}" if current else ""
        return {"job": self._job.name, "epoch": self._job.epoch, "instances": self._job.instances, "change": change}

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
            "moves": [vars(one) for one in found.moves],
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
        current = [one for one in self._job.history() if not one.over]
        self._job.abort()
        if not current:
            return {"text": "no change is under way"}
        return {"text": f"{current[0].kind}: {current[0].phase}"}

    def history(self, request: Request) -> list[dict[str, Any]]:
        """List the changes of this run."""
        return [one.facts() for one in self._job.history()]

    def pins(self, request: Request) -> list[dict[str, Any]]:
        """List the pinned keys."""
        return [asdict(one) for one in self._job.pins()]

    def hot_keys(self, request: Request) -> list[dict[str, Any]]:
        """List the hot keys."""
        return [asdict(one) for one in self._job.hot_keys()]

    def sites(self, request: Request) -> list[dict[str, Any]]:
        """List the instances by where they are."""
        return [asdict(one) for one in self._job.sites()]


def _typed(request: Request) -> TypedKeys | None:
    return TypedKeys(request["keys"]) if request.get("keys") else None


def _waited(change: Reconfiguration, request: Request) -> dict[str, Any]:
    change.wait(request.get("wait") or 0)
    return change.facts()
