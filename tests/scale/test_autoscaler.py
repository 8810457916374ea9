"""The autoscaler in simulated time, and against policies and metrics that mean harm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferryman._scale.autoscaler import Autoscaler, replay
from ferryman._scale.autoscaler_events import Behind, Changed, Committed, Event, Fewer, Keep, Quiet, Refused, Rescale
from ferryman._scale.bottleneck import Bottleneck
from ferryman._scale.epoch_metrics import EpochMetrics, OperatorMetrics
from ferryman._scale.metrics_history import MetricsHistory
from ferryman._scale.options import Autoscale
from ferryman._scale.policies import Policy, Schedule, Seep, TargetLatency, TrueRates, Wish
from ferryman._scale.simulation.engine_model import EngineModel
from ferryman._scale.simulation.loads import FlashCrowd, Flat, Ramp, SlowLeak, Step
from ferryman._scale.simulation.simulated_cluster import SimulatedCluster
from ferryman._scale.simulation.simulated_run import SimulatedRun
from ferryman._scale.simulation.simulation import Simulation

# One instance does about 10,000 rows a second.
TRIGGERED = EngineModel(trigger_s=1.0)
BACK_TO_BACK = EngineModel()
BOTH = pytest.mark.parametrize("engine", [TRIGGERED, BACK_TO_BACK], ids=["triggered", "back to back"])


def epoch(number: int, busy_s: float = 0.1, rows: int = 1000, instances: int = 1, **values: object) -> EpochMetrics:
    """An epoch a second, of which instances work so long."""
    metrics = EpochMetrics(
        epoch=number,
        began_s=float(number),
        ended_s=number + busy_s + 0.1,
        time_ms=number * 1000,
        instances=instances,
        rows=rows,
        operators={"A": OperatorMetrics((rows // instances,) * instances, (busy_s,) * instances)},
    )
    return replace(metrics, **values)  # type: ignore[arg-type]


def steps(run: SimulatedRun) -> list[tuple[int, int]]:
    return [(decision.before, decision.after) for decision in run.changes]


def machine_of(*epochs: EpochMetrics, **options: object) -> Autoscaler:
    found, _ = replay(Autoscaler(options=Autoscale(**options)), map(Committed, epochs))  # type: ignore[arg-type]
    return found


def test_after_a_change_an_epoch_that_is_long_tells_at_once() -> None:
    # The job is behind: each epoch takes six seconds, and what is cold in it is nothing beside that.
    def behind(number: int, instances: int, busy_s: float) -> EpochMetrics:
        rows = 6_000 * instances
        return EpochMetrics(
            epoch=number,
            began_s=6.0 * number,
            ended_s=6.0 * number + busy_s + 0.1,
            instances=instances,
            rows=rows,
            operators={"A": OperatorMetrics((rows // instances,) * instances, (busy_s,) * instances)},
        )

    machine, _ = replay(Autoscaler(options=Autoscale()), [Committed(behind(number, 1, 5.8)) for number in range(4)])
    assert machine.changing is not None
    more = machine.changing
    events = [Committed(behind(4, more, 5.8)), Changed(30.0), *(Committed(behind(n, more, 5.8)) for n in (5, 6, 7))]
    _, decisions = replay(machine, events)

    assert [(decision.kind, decision.before) for decision in decisions] == [("done", 1), ("scale out", more)]


# -- loads ---------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("rate", "instances"), [(6_500, 1), (27_000, 4), (300, 1)])
def test_nothing_is_decided_in_an_hour_of_flat_noisy_load(
    engine: EngineModel, rate: float, instances: int, seed: int
) -> None:
    run = Simulation(
        load=Flat(rate), autoscale=Autoscale(), instances=instances, engine=replace(engine, noise=0.1), seed=seed
    ).run(3600)

    assert run.decisions == ()
    assert len(run.epochs) > 3000


@BOTH
def test_a_step_up_is_followed_in_one_or_two_changes(engine: EngineModel) -> None:
    run = Simulation(load=Step(4_000, 20_000, at=300), autoscale=Autoscale(), engine=engine).run(900)

    assert 1 <= len(run.changes) <= 2
    assert run.changes[-1].after in (3, 4)
    # Within a minute of the step all is as if there had never been less.
    always = Simulation(load=Flat(20_000), instances=run.changes[-1].after, engine=engine).run(900)
    assert run.late_s(0.99, 360, 900) < 1.1 * always.late_s(0.99, 360, 900)
    # Back to back, an epoch at 72 % takes twice as long as one at 40 % by itself.
    if engine.trigger_s:
        assert run.late_s(0.99, 360, 900) < 2 * run.late_s(0.99, 60, 300)


@BOTH
def test_what_is_not_needed_any_more_is_given_back_after_a_minute(engine: EngineModel) -> None:
    run = Simulation(load=Step(30_000, 3_000, at=300), autoscale=Autoscale(), instances=4, engine=engine).run(900)

    assert run.changes[0].kind == "scale in"
    assert 355_000 < run.changes[0].time_ms < 372_000
    assert run.epochs[-1].metrics.instances == 1


@BOTH
def test_rows_are_in_time_while_load_grows_tenfold_and_goes_back(engine: EngineModel) -> None:
    load, after = Ramp(4_000, 40_000, 300, 600), 900
    run = Simulation(load=load, autoscale=Autoscale(target=0.6), engine=engine).run(after)
    quiet = Simulation(load=Flat(6_000), engine=engine).run(after)

    # Who knows the load has as many as are needed for 70 % at every moment.
    oracle = sum(max(1, math.ceil(load(second) / 7_000)) for second in range(after))
    assert run.epochs[-1].metrics.instances == 1
    assert len([change for change in run.changes if change.kind == "scale out"]) <= 6 + 2
    assert run.instance_seconds < 1.6 * oracle
    if engine.trigger_s:
        assert run.late_s() < 2 * quiet.late_s()


def test_a_slow_leak_is_seen_before_rows_are_late() -> None:
    run = Simulation(load=SlowLeak(4_000, 20_000), autoscale=Autoscale(), engine=TRIGGERED).run(3600)

    assert steps(run) == sorted(steps(run))
    assert run.late_s(1.0) < 2.5


def test_a_flash_crowd_with_a_bound_to_epochs_is_caught_up_with() -> None:
    run = Simulation(
        load=FlashCrowd(4_000, 60_000),
        autoscale=Autoscale(),
        engine=replace(TRIGGERED, most_rows=40_000),
        tells_backlog=True,
    ).run(1800)

    assert max(after for _, after in steps(run)) >= 9
    assert max(after for _, after in steps(run)) <= 16
    assert run.epochs[-1].backlog < 60_000


def test_a_source_that_falls_silent_has_instances_given_back() -> None:
    run = Simulation(load=Step(20_000, 0, at=100), autoscale=Autoscale(), instances=3, engine=TRIGGERED).run(300)

    assert steps(run)[-1][1] == 1


def test_a_restart_with_a_backlog_ends_where_it_began() -> None:
    run = Simulation(
        load=Flat(13_000), autoscale=Autoscale(), instances=2, engine=TRIGGERED, stalls=[(300, 60)], tells_backlog=True
    ).run(1200)

    assert run.epochs[-1].metrics.instances in (2, 3)
    assert len(run.changes) <= 4


def test_a_lost_host_is_no_reason_for_a_change() -> None:
    run = Simulation(
        load=Flat(13_000), autoscale=Autoscale(), instances=2, engine=TRIGGERED, lost=[(300, 0), (600, 1)]
    ).run(900)

    assert run.changes == []


# -- what it learns, and what it does not do ---------------------------------------------------------------


def test_instances_that_bring_nothing_are_not_asked_for_again_and_again() -> None:
    # One core: each further instance only slows down the others.
    engine = replace(TRIGGERED, contention=1.0)
    run = Simulation(
        load=Flat(12_000), autoscale=Autoscale(), engine=engine, cluster=SimulatedCluster(hosts=1, cores=64)
    ).run(900)

    held = [decision for decision in run.decisions if decision.kind == "held"]
    assert any("did not help" in decision.why for decision in held)
    assert len([change for change in run.changes if change.kind == "scale out"]) <= 5


def test_it_learns_that_instances_bring_less_than_they_should() -> None:
    engine = replace(TRIGGERED, contention=0.15)
    run = Simulation(
        load=Step(6_000, 20_000, at=60),
        autoscale=Autoscale(),
        engine=engine,
        cluster=SimulatedCluster(hosts=1, cores=16),
    ).run(600)

    told = [decision.figures["scalability"] for decision in run.decisions if decision.figures]
    assert told[0] == 1.0
    assert run.epochs[-1].metrics.instances >= 4


@pytest.mark.parametrize(
    ("engine", "cluster", "load", "bottleneck"),
    [
        (replace(TRIGGERED, sink_row_s=9e-5), SimulatedCluster(), 11_000, Bottleneck.SINK),
        (TRIGGERED, SimulatedCluster(hot=0.9), 12_000, Bottleneck.HOT_KEY),
        (EngineModel(most_rows=200, overhead_s=0.2), SimulatedCluster(), 3_000, Bottleneck.SMALL_EPOCHS),
    ],
    ids=["a slow sink", "a hot key", "small epochs"],
)
def test_nothing_is_done_where_more_instances_would_not_help(
    engine: EngineModel, cluster: SimulatedCluster, load: float, bottleneck: Bottleneck
) -> None:
    run = Simulation(
        load=Flat(load), autoscale=Autoscale(), engine=engine, cluster=cluster, instances=2, tells_backlog=True
    ).run(200)

    assert run.changes == []
    assert run.finding is not None
    assert run.finding.bottleneck is bottleneck
    # It says so once, if the policy wants more.
    assert [decision.kind for decision in run.decisions] == ["held"] * (bottleneck is not Bottleneck.SINK)
    assert all(bottleneck.value in decision.why for decision in run.decisions)


def test_a_source_that_gives_no_more_to_an_epoch_and_does_not_tell_what_it_has_is_seen_by_epochs_without_rest() -> None:
    run = Simulation(
        load=Flat(30_000), autoscale=Autoscale(), engine=EngineModel(most_rows=3_000), cluster=SimulatedCluster(hosts=1)
    ).run(120)

    # More of them than that would only wait for what goes on around them.
    assert 2 <= run.epochs[-1].metrics.instances <= 4
    assert "more rows than it gives" in run.changes[0].why


def test_state_that_may_not_move_is_not_moved() -> None:
    run = Simulation(load=Step(4_000, 20_000, at=60), autoscale=Autoscale(most_moved=1_000_000), engine=TRIGGERED).run(
        300
    )

    assert {epoch.metrics.instances for epoch in run.epochs} == {1}
    assert next(d.why for d in run.decisions if d.kind == "refused").endswith("bytes would move, and 1,000,000 may")


def test_a_dry_run_says_what_it_would_do_and_does_nothing() -> None:
    run = Simulation(load=Flat(20_000), autoscale=Autoscale(dry_run=True), engine=TRIGGERED).run(30)

    assert {epoch.metrics.instances for epoch in run.epochs} == {1}
    assert str(run.changes[0]).startswith("would scale out, 1 -> ")


def test_soon_taken_back_is_waited_longer_for_the_next_time() -> None:
    # Every two minutes as much as three instances do, which is more often than it pays to give them back.
    def often(at_s: float) -> float:
        return 20_000 if at_s % 120 < 30 else 3_000

    run = Simulation(load=often, autoscale=Autoscale(), engine=TRIGGERED, instances=3).run(3600)

    assert len(run.changes) < 16
    assert len([change for change in run.changes if change.time_ms > 1_800_000]) <= 8


def test_a_decision_tells_the_figures_that_led_to_it() -> None:
    run = Simulation(load=Flat(20_000), autoscale=Autoscale(), engine=TRIGGERED).run(30)
    decision = run.changes[0]

    assert "need" in decision.why
    assert "70%" in decision.why
    assert decision.bottleneck.startswith("too few instances: ")
    assert {"rows_per_s", "capacity_rows_per_s", "utilisation", "overhead_ms", "operator: busy"} <= set(
        decision.figures
    )


def test_the_same_events_lead_to_the_same_machine() -> None:
    events: list[Event] = [Committed(epoch(number, 0.95)) for number in range(1, 12)]
    events += [Changed(12.0, 0.5, 100), Quiet(14.0, 14_000), Behind(14.0, 7)]

    assert replay(Autoscaler(options=Autoscale()), events) == replay(Autoscaler(options=Autoscale()), events)


# -- policies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [TrueRates(), Seep(), TargetLatency(seconds=1.8), Schedule({"00:00": 4})],
    ids=["true rates", "SEEP", "latency", "schedule"],
)
def test_every_policy_copes_with_growing_load(policy: Policy) -> None:
    run = Simulation(load=SlowLeak(6_000, 70_000), autoscale=Autoscale(policy=policy), engine=TRIGGERED).run(900)

    assert run.epochs[-1].metrics.instances >= 3
    assert run.late_s(0.99, 850) < 3


# -- whoever means harm ----------------------------------------------------------------------------------


def raises(history: MetricsHistory) -> Wish:
    raise ZeroDivisionError("oh")


def leaves(history: MetricsHistory) -> Wish:
    raise SystemExit("bye")


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no words")


RUBBISH: dict[str, Callable[[MetricsHistory], object]] = {
    "raises": raises,
    "text": lambda history: "more",
    "not a number": lambda history: Wish(math.nan, "?"),  # type: ignore[arg-type]
    "a list": lambda history: [1],
    "true": lambda history: Wish(True, "yes"),
    "ends the process": leaves,
    "cannot be told": lambda history: Unspeakable(),
    "cannot be written": lambda history: Wish(10**5000, "more"),
}


@pytest.mark.parametrize("policy", RUBBISH.values(), ids=list(RUBBISH))
def test_a_policy_that_says_nothing_sensible_is_told_of_once_and_changes_nothing(policy: Policy) -> None:
    run = Simulation(load=Flat(20_000), autoscale=Autoscale(policy=policy), engine=TRIGGERED).run(60)

    assert [decision.kind for decision in run.decisions] == ["ignored"]
    assert {epoch.metrics.instances for epoch in run.epochs} == {1}


@pytest.mark.parametrize(("wanted", "most"), [(0, 2), (-5, 2), (10**6, 8)])
def test_a_policy_that_asks_for_nothing_or_a_million_gets_what_is_allowed(wanted: int, most: int) -> None:
    options = Autoscale(min=2, max=8, policy=lambda history: Wish(wanted, "so I say"))
    run = Simulation(load=Flat(5_000), autoscale=options, engine=TRIGGERED, instances=4).run(120)

    assert run.epochs[-1].metrics.instances == most
    assert "wanted" in run.changes[0].why


def test_with_a_pool_more_is_decided_on_than_there_are_slots_for_and_no_more_than_there_can_be_room_for() -> None:
    def decided(**places: int) -> list[tuple[int, int]]:
        options = Autoscale(max=10**6, policy=lambda history: Wish(10**6, "so I say"))
        machine = Autoscaler(options=options)
        _, decisions = replay(machine, [Committed(epoch(number, **places)) for number in range(1, 12)])
        return [(decision.before, decision.after) for decision in decisions]

    assert decided(slots=2) == [(1, 2)]
    assert decided(slots=2, room=6) == [(1, 6)]
    # After a refusal.
    assert decided(slots=2, room=1) == []


def test_where_there_is_room_for_fewer_than_were_wanted_it_goes_as_far_as_that() -> None:
    wants = Autoscale(policy=lambda history: Wish(5, "so I say"))
    machine, _ = replay(Autoscaler(options=wants), [Committed(epoch(number, room=8)) for number in range(1, 12)])
    assert machine.changing == 5

    some, instructions = machine.handle(Fewer(12.0, 3, "3 of 5 executors are there"))
    kept = [wanted.decision for wanted in instructions if isinstance(wanted, Keep)]
    assert [wanted.instances for wanted in instructions if isinstance(wanted, Rescale)] == [3]
    assert str(kept[0]).endswith("3 of 5 executors are there, so there are going to be 3")
    done, (told,) = some.handle(Changed(13.0, 0.5, 100))
    assert str(told.decision).startswith("done, 1 -> 3 instances")  # type: ignore[union-attr]
    assert done.changing is None

    none, instructions = machine.handle(Fewer(12.0, 1, "1 of 5 executors is there"))
    assert [wanted.decision.kind for wanted in instructions if isinstance(wanted, Keep)] == ["refused"]
    assert none.changing is None


def test_a_policy_that_flaps_changes_nothing() -> None:
    def flaps(history: MetricsHistory) -> Wish:
        return Wish(1 if history.epochs[-1].epoch % 3 else 16, "to and fro")

    run = Simulation(load=Flat(5_000), autoscale=Autoscale(policy=flaps), engine=TRIGGERED, instances=4).run(600)

    assert run.changes == []


def test_a_clock_that_goes_back_does_not_stop_it() -> None:
    machine = machine_of(*[epoch(number, 0.2) for number in range(1000, 1010)])
    events = [
        Committed(epoch(number + 1010, 0.95, began_s=float(number), ended_s=number + 1.05)) for number in range(20)
    ]

    _, decisions = replay(machine, events)

    assert [decision.kind for decision in decisions] == ["scale out"]


def test_a_change_that_is_refused_is_tried_again_later() -> None:
    machine = machine_of(*[epoch(number, 0.95) for number in range(1, 12)])
    assert machine.changing is not None

    machine, _ = machine.handle(Refused(12.0, "a move is under way"))
    machine, early = replay(machine, [Committed(epoch(number, 0.95)) for number in range(12, 20)])
    machine, late = replay(machine, [Committed(epoch(number, 0.95)) for number in range(20, 30)])

    assert [decision.kind for decision in early] == ["held"]
    assert [decision.kind for decision in late] == ["scale out"]


def numbers() -> st.SearchStrategy[float]:
    return st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 5)


@st.composite
def metrics(draw: st.DrawFn) -> EpochMetrics:
    began, instances = draw(st.floats(-10, 500) | numbers()), draw(st.integers(0, 6))
    return EpochMetrics(
        epoch=draw(st.integers(0, 60)),
        began_s=began,
        ended_s=began + draw(numbers()),
        time_ms=draw(st.integers(0, 10**12)),
        instances=instances,
        rows=draw(st.integers(-1, 10**9)),
        operators={
            "A": OperatorMetrics(
                tuple(draw(st.lists(st.integers(0, 10**6), max_size=4))), tuple(draw(st.lists(numbers(), max_size=4)))
            )
        },
        disturbed=draw(st.booleans()),
        late_ms=draw(st.none() | st.floats(0, 1e6)),
        slots=draw(st.none() | st.integers(1, 4)),
    )


EVENTS = st.lists(
    metrics().map(Committed)
    | st.builds(Quiet, st.floats(0, 500), st.integers(0, 10**12))
    | st.builds(Behind, st.floats(0, 500), st.integers(-5, 10**9))
    | st.builds(Changed, st.floats(0, 500), st.floats(0, 5), st.integers(0, 10**9))
    | st.builds(Refused, st.floats(0, 500), st.just("no"))
    | st.builds(Fewer, st.floats(0, 500), st.integers(0, 8), st.just("no room")),
    max_size=40,
)
POLICIES = st.sampled_from(
    [TrueRates(window_s=0.5), Seep(), TargetLatency(seconds=1.0), Schedule({"07:00": 5}), raises]
)


@settings(deadline=None, max_examples=150)
@given(events=EVENTS, policy=POLICIES, least=st.integers(1, 3), more=st.integers(0, 5))
def test_whatever_is_told_it_stays_within_its_limits_and_changes_one_thing_at_a_time(
    events: list[Event], policy: Policy, least: int, more: int
) -> None:
    options = Autoscale(
        min=least, max=least + more, policy=policy, window="0.5 s", scale_out_after=0, scale_in_after=0, cool_down=0
    )
    machine = Autoscaler(options=options)
    for event in events:
        before = machine.changing
        machine, instructions = machine.handle(event)
        for wanted in instructions:
            if isinstance(wanted, Rescale):
                assert before is None or isinstance(event, Fewer)
                assert least <= wanted.instances <= least + more
            if isinstance(wanted, Keep):
                assert wanted.decision.parse(wanted.decision.json()) == wanted.decision
