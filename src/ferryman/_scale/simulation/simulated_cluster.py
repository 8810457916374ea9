"""The hosts of a simulation: who is on which, what their tasks take together, how fast state travels. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ferryman._migrate.placement import Load
from ferryman._migrate.planning import Move
from ferryman._model.routing import RoutingTable
from ferryman._scale.simulation.engine_model import EngineModel

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SimulatedCluster:
    """Hosts with cores, the lines between them, and the state that they keep.

    Attributes
    ----------
    hosts, cores
        How many hosts there are, and how many tasks can run on each at the same time.
    line_s
        How many bytes of state go from one host to another in a second.
    restore_s
        How many bytes a host can rebuild from the checkpoint in a second.
    prepare_s
        How long it takes to prepare the next layout.
    groups
        How many key groups there are.
    skew
        How much they differ: 0 for not at all, 1 as words of a language do.
    hot
        What part of all rows one key has.
    keys
        How many keys there are, each as often as any other: key groups then differ by how many they have; None for very
        many.
    state_bytes
        How many bytes of state there are in all.
    slow
        How many times as long the tasks of a host take, by its number.
    """

    hosts: int = 4
    cores: int = 4
    line_s: float = 200e6
    restore_s: float = 100e6
    prepare_s: float = 0.05
    groups: int = 256
    skew: float = 0.0
    hot: float = 0.0
    keys: int | None = None
    state_bytes: int = 100_000_000
    slow: dict[int, float] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Give how many tasks can run at the same time."""
        return self.hosts * self.cores

    def weights(self, seed: int) -> Floats:
        """Give what part of all rows each key group has."""
        ranks = np.arange(1, self.groups + 1, dtype=np.float64) ** -self.skew
        random = np.random.default_rng(seed)
        shares = random.permutation(ranks / ranks.sum())
        if self.keys is not None:
            shares = random.multinomial(self.keys, shares) / self.keys
        weights: Floats = shares * (1 - self.hot)
        weights[0] += self.hot
        return weights

    def load(self, weights: Floats) -> Load:
        """Give the same as planning takes it."""
        return Load(weights.tolist())

    def host(self, instance: int) -> int:
        """Tell where an instance is: they take turns."""
        return instance % self.hosts

    def shares(self, table: RoutingTable, weights: Floats) -> Floats:
        """Give what part of all rows each instance has."""
        mine: Floats = np.bincount(table.owner, weights, table.instances).astype(np.float64)
        return mine

    def busy(self, rows: npt.NDArray[np.int64], engine: EngineModel) -> Floats:
        """Give for how long each instance works on its rows of an epoch."""
        on = np.arange(len(rows)) % self.hosts
        beside = np.minimum(np.bincount(on, minlength=self.hosts), self.cores)[on] - 1
        slow = np.array([self.slow.get(host, 1.0) for host in range(self.hosts)])[on]
        busy: Floats = (engine.fixed_s + rows * engine.row_s) * (1 + engine.contention * beside) * slow
        return busy

    def stage_s(self, busy: Floats, *, express: bool = False) -> float:
        """Give how long it takes until all instances are done, where hosts have fewer cores than instances."""
        if express and self.hosts == 1:
            return float(busy.sum())
        on = np.arange(len(busy)) % self.hosts
        return float(max(busy.max(), np.bincount(on, busy).max() / self.cores))

    def copies(self, moves: Sequence[Move], weights: Floats) -> list[tuple[float, Move, int]]:
        """Say when each move's state would be there, from when copying begins, and how many bytes go for it.

        Each pair of hosts has a line; what stays on its host is there at once.
        """
        done: dict[tuple[int, int], float] = {}
        found = []
        for move in moves:
            lane = (self.host(move.source), self.host(move.target))
            size = 0 if lane[0] == lane[1] else int(self.state_bytes / self.groups)
            done[lane] = done.get(lane, 0.0) + size / self.line_s
            found.append((done[lane], move, size))
        return sorted(found, key=lambda copy: copy[0])

    def rebuild_s(self, table: RoutingTable, host: int) -> float:
        """Give how long it takes to rebuild what a host had, spread over the others."""
        lost = sum(self.host(owner) == host for owner in table.owner) / self.groups * self.state_bytes
        return lost / self.restore_s / max(1, self.hosts - 1)
