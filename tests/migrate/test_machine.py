"""The migration machine: all interleavings of a small world, random ones of larger worlds, under every strategy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from migration_world import World, table

from ferryman._migrate.machine import Assignment, Migration, Phase, replay
from ferryman._migrate.plan import Plan
from ferryman._migrate.plan_events import Arrived, EpochBegan, EpochEnded, Event, Failed, GivenUp, Instruction, Prepared
from ferryman._migrate.planning import Move
from ferryman._migrate.strategies import STRATEGIES, Strategy, matching, strategy
from ferryman._model.errors import InvalidPlan
from ferryman._model.routing import RoutingTable

EVERY = pytest.mark.parametrize("how", STRATEGIES.values(), ids=list(STRATEGIES))


COMMITTED, FAILED = EpochEnded(committed=True), EpochEnded(committed=False)


def told(before: RoutingTable, after: RoutingTable, how: str, *events: Event) -> Migration:
    """Give the machine of a plan that is prepared and told of events."""
    plan = Plan.of(before, after, strategy(how))
    return replay(Migration.of(plan), [Prepared(plan), *events])


@EVERY
@pytest.mark.parametrize("after", [table(3, 1, 2), table(3, 2, 2), table(1, 0, 0)], ids=["apart", "together", "fewer"])
def test_all_interleavings_with_a_crash_and_an_abort(how: Strategy, after: RoutingTable) -> None:
    before = table(2, 0, 1) if after.instances == 1 else table(3, 0, 1)
    seen: set[World] = set()
    todo = [World.of(Migration.of(Plan.of(before, after, how)))]
    ends: set[Phase] = set()
    while todo:
        world = todo.pop()
        if world in seen:
            continue
        seen.add(world)
        world.check()
        if world.machine.over:
            ends.add(world.machine.phase)
        end = world.settled()
        assert not any(end.held), "rows that are never processed"
        todo += world.next(last_epoch=5).values()
    assert ends == {Phase.DONE, Phase.ABORTED}
    assert len(seen) > 100


@pytest.mark.parametrize("after", [table(3, 1, 2), table(3, 0, 1), table(3, 2, 1)], ids=["apart", "here", "one moves"])
@pytest.mark.parametrize("lost", [{0}, {0, 1}], ids=["one", "both"])
def test_all_interleavings_of_a_recovery(after: RoutingTable, lost: set[int]) -> None:
    before = table(3, 0, 1)
    if after.owner[1] != 1 and 1 not in lost:
        return
    plan = Plan.of_lost(before, after, lost)
    start = World.of(Migration.of(plan))
    mains = frozenset(main for main in start.mains if main[1] not in lost)
    seen: set[World] = set()
    todo = [replace(start, mains=mains)]
    while todo:
        world = todo.pop()
        if world in seen:
            continue
        seen.add(world)
        world.check()
        machine = world.machine
        if not machine.over:
            assert machine.assignment().held == plan.lost - machine.arrived, "nobody has them yet"
        assert not any(world.settled().held), "rows that are never processed"
        todo += world.next(last_epoch=5).values()
    assert len(seen) > 100


def test_a_recovery_restores_before_the_epoch_that_hands_over_and_is_tasks_work_if_it_is_given_up() -> None:
    before = table(2, 0, 1)
    machine = Migration.of(Plan.of_lost(before, table(2, 1, 1), {0}))

    assert machine.assignment() == Assignment(before, frozenset({0})), "from the very first epoch"
    assert machine.after(GivenUp("no host")).assignment().held == frozenset()
    machine = machine.after(Prepared(machine.plan))
    assert machine.to_copy() == (Move(0, 0, 1),)
    machine = machine.after(Arrived(frozenset({0})))
    assert machine.assignment().table.owner == (1, 1)
    assert machine.assignment().held == frozenset()
    assert replay(machine, [EpochBegan(), COMMITTED]).phase is Phase.DONE


@EVERY
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_random_interleavings_of_larger_worlds(how: Strategy, data: st.DataObject) -> None:
    groups = data.draw(st.integers(2, 10))
    a, b = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    before = table(a, *data.draw(st.lists(st.integers(0, a - 1), min_size=groups, max_size=groups)))
    after = table(b, *data.draw(st.lists(st.integers(0, b - 1), min_size=groups, max_size=groups)))
    if before.owner == after.owner and a == b:
        return
    world = World.of(Migration.of(Plan.of(before, after, how)), crashes=3, aborts=1)
    while choices := world.next(last_epoch=40):
        usual = [name for name in choices if not name.startswith(("failed", "abort", "host", "driver", "epoch"))]
        names = sorted(choices) if data.draw(st.integers(0, 9)) == 0 or not usual else sorted(usual)
        world = choices[data.draw(st.sampled_from(names))]
        world.check()
        if world.epoch >= 40:
            break
    assert not any(world.settled().held)


@EVERY
def test_with_no_trouble_every_strategy_ends_done(how: Strategy) -> None:
    before, after = RoutingTable.even(4, 12, 2), RoutingTable.even(4, 12, 4)
    end = World.of(Migration.of(Plan.of(before, after, how))).settled()

    assert end.machine.table.owner == after.owner
    assert end.machine.table.version > 4


@EVERY
def test_instances_come_and_go_where_no_group_moves(how: Strategy) -> None:
    before, after = table(2, 0, 0), table(1, 0, 0)
    end = World.of(Migration.of(Plan.of(before, after, how))).settled()

    assert end.machine.phase is Phase.DONE
    assert end.machine.table.instances == 1


def test_live_never_holds_a_row_and_never_stops() -> None:
    before, after = table(2, 0, 0, 1), table(2, 1, 0, 1)
    machine = told(before, after, "live")

    assert machine.to_copy() == (Move(0, 0, 1),)
    assert machine.assignment().held == frozenset()
    assert machine.assignment().table == before
    machine = machine.after(Arrived(frozenset({0})))
    assert machine.assignment().table.owner == after.owner
    machine = replay(machine, [EpochBegan(), COMMITTED])
    assert machine.phase is Phase.DONE
    assert machine.to_release() == (Move(0, 0, 1),)


def test_push_switches_at_once_and_holds_what_has_not_come() -> None:
    machine = told(table(2, 0, 0), table(2, 1, 1), "push", EpochBegan())

    assert machine.running is not None
    assert machine.running.table.owner == (1, 1)
    assert machine.running.held == {0, 1}
    machine = replay(machine, [COMMITTED, Arrived(frozenset({1}))])
    assert machine.assignment().held == {0}
    assert machine.after(GivenUp("too late")).phase is Phase.RELEASE
    assert machine.after(Arrived(frozenset({0}))).phase is Phase.DONE


def test_what_cannot_be_copied_is_not_tried_again_before_it_is_known_whether_it_has_switched() -> None:
    machine = told(table(2, 0, 0), table(2, 1, 1), "push", EpochBegan())
    assert [move.group for move in machine.to_copy()] == [0, 1]

    failed = machine.after(Failed(frozenset({0}), "the target is gone"))
    assert not failed.over
    assert failed.to_copy() == ()
    assert failed.after(FAILED).phase is Phase.ABORTED
    switched = failed.after(COMMITTED)
    assert [move.group for move in switched.to_copy()] == [0, 1]
    assert replay(switched, [Failed(frozenset({0}), "gone"), Failed(frozenset({1}), "gone")]).phase is Phase.DONE


def test_an_abort_while_the_switch_is_under_way_is_decided_by_the_commit() -> None:
    before = table(2, 0)
    asked = told(before, table(2, 1), "live", Arrived(frozenset({0})), EpochBegan(), GivenUp("asked"))

    assert not asked.over
    assert asked.after(COMMITTED).phase is Phase.DONE
    assert asked.after(COMMITTED).reason == "", "it was too late for that"
    assert asked.after(FAILED).phase is Phase.ABORTED
    assert asked.after(FAILED).table == before


def test_an_epoch_is_asked_for_when_the_next_is_another_and_all_is_let_go_of_once() -> None:
    machine = told(table(2, 0, 0), table(2, 1, 1), "live")
    wanted = []
    for event in (Arrived(frozenset({0})), Arrived(frozenset({1})), EpochBegan(), COMMITTED, GivenUp("too late")):
        machine, instructions = machine.handle(event)
        wanted.append(instructions)

    assert wanted == [(), (Instruction.EPOCH,), (), (Instruction.EPOCH, Instruction.RELEASE), ()]


def test_a_strategy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidPlan, match="stop_restart, pause_resume"):
        strategy("teleport")


@given(st.lists(st.builds(Move, st.integers(0, 50), st.integers(0, 3), st.integers(4, 7)), unique_by=lambda m: m.group))
def test_a_matching_is_one_and_the_largest(some: list[Move]) -> None:
    chosen = matching(sorted(some))

    assert len({move.source for move in chosen}) == len({move.target for move in chosen}) == len(chosen)
    best = 0
    pairs = sorted({(move.source, move.target) for move in some})
    for mask in range(1 << min(len(pairs), 12)):
        one = [pair for place, pair in enumerate(pairs[:12]) if mask >> place & 1]
        if len({a for a, _ in one}) == len({b for _, b in one}) == len(one):
            best = max(best, len(one))
    assert len(chosen) >= best
