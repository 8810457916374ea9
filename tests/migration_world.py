"""A small world for the migration machine to run in: epochs, rows, hosts that die; and what must hold in it.

Every epoch brings one row for each group, numbered by the epoch. Only a commit counts. What a group has
processed, and what is held for it, is part of what an epoch commits, as in the real checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ferryman._migrate.machine import Assignment, Migration, Phase, replay
from ferryman._migrate.plan_events import Arrived, EpochBegan, EpochEnded, Event, Failed, GivenUp, Prepared
from ferryman._model.routing import RoutingTable

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class World:
    """The machine, what is committed, what hosts hold, and what may still go wrong."""

    machine: Migration
    epoch: int
    processed: Rows
    held: Rows
    mains: frozenset[tuple[int, int]]
    crashes: int
    aborts: int
    restarted: bool = False
    lost: frozenset[int] = frozenset()
    # Worlds that are alike are one, however they came about.
    events: tuple[Event, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, machine: Migration, crashes: int = 1, aborts: int = 1) -> World:
        groups = len(machine.plan.before.owner)
        mains = frozenset((owner, group) for group, owner in enumerate(machine.plan.before.owner))
        return cls(machine, 0, ((),) * groups, ((),) * groups, mains, crashes, aborts)

    # -- what can happen ---------------------------------------------------------------------------

    def next(self, last_epoch: int) -> dict[str, World]:
        """Give every world that can be next, by what happened."""
        machine = self.machine
        found: dict[str, World] = {}
        if machine.over or self.restarted:
            return found
        if not machine.prepared:
            found["prepared"] = self._told(Prepared(machine.plan))
        for move in machine.to_copy():
            there = self.mains | {(move.target, move.group)}
            found[f"arrived {move.group}"] = replace(self._told(Arrived(frozenset({move.group}))), mains=there)
            found[f"failed {move.group}"] = self._told(Failed(frozenset({move.group}), "a peer is gone"))
        if machine.running is None and not machine.stopped and self.epoch < last_epoch:
            found["begin"] = self._told(EpochBegan())
        if machine.running is not None:
            found["commit"] = self._committed(machine.running)
            found["epoch failed"] = self._told(EpochEnded(committed=False))
        if self.aborts:
            found["abort"] = replace(self._told(GivenUp("asked")), aborts=self.aborts - 1)
        if self.crashes:
            for host in range(max(machine.plan.before.instances, machine.plan.after.instances)):
                found[f"host {host} dies"] = self._without(host)
            found["driver dies"] = replace(self, restarted=True, crashes=self.crashes - 1)
        return found

    def _told(self, event: Event) -> World:
        return replace(self, machine=self.machine.after(event), events=(*self.events, event))

    def _committed(self, running: Assignment) -> World:
        epoch = self.epoch + 1
        processed, held = list(self.processed), list(self.held)
        for group in range(len(processed)):
            if group in running.held:
                held[group] = (*held[group], epoch)
            else:
                processed[group] = (*processed[group], *held[group], epoch)
                held[group] = ()
        # A task whose main is not there rebuilds it from the checkpoint: after an epoch every owner has its mains,
        # but for those of groups that only had rows held.
        there = {(owner, group) for group, owner in enumerate(running.table.owner) if group not in running.held}
        return replace(
            self._told(EpochEnded(committed=True)),
            epoch=epoch,
            processed=tuple(processed),
            held=tuple(held),
            mains=self.mains | there,
        )

    def _without(self, host: int) -> World:
        """Take away what a host has; the machine is not told, as nobody is who holds a copy and waits for an epoch."""
        return replace(
            self,
            mains=frozenset(main for main in self.mains if main[0] != host),
            lost=self.lost | {host},
            crashes=self.crashes - 1,
        )

    # -- what must hold ----------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants: one owner, in order and exactly once, all or nothing until the switch."""
        machine, plan = self.machine, self.machine.plan
        rows = tuple(range(1, self.epoch + 1))
        for group, (done, waiting) in enumerate(zip(self.processed, self.held, strict=True)):
            assert (*done, *waiting) == rows, f"group {group} is out of order, or rows are lost or doubled"
        switched = {move.group for step in plan.steps[: machine.step] for move in step}
        for group, owner in enumerate(machine.table.owner):
            assert owner == (plan.after if group in switched else plan.before).owner[group]
            assert 0 <= owner < machine.table.instances
        if machine.phase is Phase.DONE:
            assert machine.table.owner == plan.after.owner
            assert machine.table.instances == plan.after.instances
        if machine.phase in (Phase.PREPARE, Phase.COPY) and machine.step == 0:
            assert machine.table == plan.before, "nothing has changed before the switch commits"
        if machine.running is None and not plan.strategy.switches_first and machine.phase is Phase.SWITCH:
            there = ((move.target, move.group) in self.mains for move in plan.steps[machine.step])
            gone = (move.target in self.lost for move in plan.steps[machine.step])
            assert all(one or other for one, other in zip(there, gone, strict=True))
        if machine.assignment().held:
            assert plan.strategy.waits == "moving"
            assert machine.assignment().held <= {move.group for move in plan.moves}

    def settled(self) -> World:
        """Let everything go well from here on, and give the end: every plan must come to one."""
        world = self
        for _ in range(200):
            if world.machine.over or world.restarted:
                break
            machine = world.machine
            if not machine.prepared:
                world = world._told(Prepared(machine.plan))
            elif machine.to_copy():
                move = machine.to_copy()[0]
                there = world.mains | {(move.target, move.group)}
                world = replace(world._told(Arrived(frozenset({move.group}))), mains=there)
            elif machine.running is not None:
                world = world._committed(machine.running)
            else:
                assert not machine.stopped, "an epoch that never comes"
                world = world._told(EpochBegan())
            world.check()
        assert world.machine.over or world.restarted, f"no end: {world.machine.phase}"
        plan = world.machine.plan
        assert replay(Migration.of(plan), world.events) == world.machine, "the events do not tell how it came about"
        return world.after()

    def after(self) -> World:
        """Run one more epoch, as any job does when no plan is under way: nothing may be left waiting."""
        machine = self.machine
        if machine.running is not None and not self.restarted:
            return self._committed(machine.running).after()
        quiet = replace(self, machine=replace(machine, running=Assignment(machine.table)), restarted=True)
        return quiet._committed(Assignment(machine.table))


def table(instances: int, *owner: int) -> RoutingTable:
    """Write a routing table."""
    return RoutingTable(1, instances, owner)
