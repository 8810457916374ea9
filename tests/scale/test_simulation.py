"""Simulated time: the machines of autoscaler and migration on a model of the engine; seeded, and as a job would go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ferryman._migrate.strategies import STRATEGIES
from ferryman._scale.named_policies import options_of
from ferryman._scale.options import Autoscale
from ferryman._scale.policies import Wish
from ferryman._scale.simulation.engine_model import EngineModel
from ferryman._scale.simulation.loads import SHAPES, Flat, Recorded, Step
from ferryman._scale.simulation.simulated_cluster import SimulatedCluster
from ferryman._scale.simulation.simulation import Simulation, replayed

TRIGGERED = EngineModel(trigger_s=1.0)


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    def run(seed: int) -> object:
        return Simulation(load=Step(4_000, 20_000, at=30), autoscale=Autoscale(), engine=TRIGGERED, seed=seed).run(90)

    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_row_is_lost_whatever_comes(shape: str) -> None:
    run = Simulation(load=SHAPES[shape](1_000, 9_000), engine=TRIGGERED, instances=2).run(600)

    came = sum(SHAPES[shape](1_000, 9_000)(second + 0.5) for second in range(600))
    assert sum(epoch.metrics.rows for epoch in run.epochs) == pytest.approx(came, rel=0.03)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_gets_where_it_should(strategy: str) -> None:
    options = Autoscale(policy=lambda history: Wish(5, "five"))
    # One group an epoch, with some strategies.
    cluster = SimulatedCluster(groups=24)
    run = Simulation(
        load=Flat(3_000), autoscale=options, engine=TRIGGERED, cluster=cluster, strategy=strategy, instances=2
    ).run(60)

    assert run.epochs[-1].metrics.instances == 5
    assert [decision.kind for decision in run.decisions] == ["scale out", "done"]


def test_a_change_with_much_state_takes_as_long_as_the_line_needs() -> None:
    options = Autoscale(policy=lambda history: Wish(2, "two"))
    slow = SimulatedCluster(state_bytes=4_000_000_000, line_s=100e6)
    run = Simulation(load=Flat(3_000), autoscale=options, engine=TRIGGERED, cluster=slow).run(60)

    began, done = run.decisions
    # Half of it goes over one line.
    assert 20 <= (done.time_ms - began.time_ms) / 1000 <= 23
    assert "2,000,000,000 bytes" in done.why


def test_a_lost_host_costs_one_epoch() -> None:
    cluster = SimulatedCluster(hosts=2, state_bytes=1_000_000_000)
    run = Simulation(load=Flat(3_000), engine=TRIGGERED, cluster=cluster, instances=2, lost=[(30.0, 1)], seed=3).run(60)

    long = [epoch.metrics for epoch in run.epochs if epoch.metrics.took_s > 3]
    assert len(long) == 1
    assert long[0].disturbed
    assert long[0].took_s == pytest.approx(5.3, abs=0.5)


def test_instances_beyond_the_cores_take_turns() -> None:
    cluster = SimulatedCluster(hosts=1, cores=2)
    two, four = (
        Simulation(load=Flat(15_000), engine=TRIGGERED, cluster=cluster, instances=count).run(60) for count in (2, 4)
    )

    assert four.late_s() == pytest.approx(two.late_s(), rel=0.05)


def test_latency_is_that_of_the_rows_that_waited_longest() -> None:
    run = Simulation(load=Flat(5_000), engine=replace(TRIGGERED, noise=0.0)).run(60)

    # A second until its epoch begins, and 0.6 s until that is committed.
    assert run.late_s(1.0, since=2) == pytest.approx(1.59, abs=0.05)


def test_a_model_of_recorded_epochs_predicts_another_load() -> None:
    engine = EngineModel(overhead_s=0.12, fixed_s=0.03, row_s=8e-5, per_instance_s=0.0, sink_s=0.02, trigger_s=1.0)
    recorded = Simulation(load=SHAPES["sawtooth"](1_000, 9_000), engine=engine, instances=2).run(900)

    fitted = EngineModel.fitted([epoch.metrics for epoch in recorded.epochs])
    for rate, instances in [(3_000, 1), (9_000, 1), (20_000, 3), (30_000, 4), (500, 2)]:
        real, predicted = (
            Simulation(load=Flat(rate), engine=model, instances=instances).run(120) for model in (engine, fitted)
        )
        assert predicted.late_s(since=5) == pytest.approx(real.late_s(since=5), rel=0.05)


def test_a_model_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="three at the least"):
        EngineModel.fitted([])


def test_recorded_epochs_say_what_would_have_been_decided() -> None:
    run = Simulation(load=Step(4_000, 12_000, at=60), engine=TRIGGERED).run(100)

    decisions = replayed([epoch.metrics for epoch in run.epochs], Autoscale())

    assert decisions[0].kind == "scale out"
    assert decisions[0].dry_run
    assert decisions[0].time_ms > 60_000


def test_a_recorded_load_is_what_it_was() -> None:
    run = Simulation(load=Recorded([(0, 1_000), (30, 5_000)]), engine=TRIGGERED).run(60)

    rows = [epoch.metrics.rows for epoch in run.epochs]
    assert sum(rows[5:25]) / 20 == pytest.approx(1_000, rel=0.05)
    assert sum(rows[35:55]) / 20 == pytest.approx(5_000, rel=0.05)


def test_options_from_a_shell_have_policies_by_name() -> None:
    assert options_of({"max": 3}) == Autoscale(max=3)
    assert repr(options_of({"policy": "seep", "target": 0.6}).policy) == "Seep(above=0.6, report_s=5.0)"


def test_triggers_come_at_whole_multiples() -> None:
    # The epoch that begins at 2 s has a second and a half of work.
    load = Recorded([(0, 1_000), (1, 15_000), (2, 500)])
    run = Simulation(load=load, engine=replace(TRIGGERED, noise=0.0, cold_s=0.0)).run(6)

    began = [round(epoch.metrics.began_s, 2) for epoch in run.epochs[1:5]]
    # An epoch that was too long is followed at once, and then it is the next multiple again.
    assert began == [1.0, 2.0, pytest.approx(3.5, abs=0.15), 4.0]


def test_a_change_that_is_asked_for_in_an_epoch_takes_from_then_on() -> None:
    engine = replace(TRIGGERED, noise=0.0, cold_s=0.0)
    cluster = SimulatedCluster(hosts=1)
    run = Simulation(load=Flat(5_000), engine=engine, cluster=cluster, changes=[(10.2, 3), (20.9, 1)]).run(40)

    out, back = run.plans
    assert [(plan.before, plan.after) for plan in run.plans] == [(1, 3), (3, 1)]
    # Until the next trigger, and then an epoch of a third of the rows, or of all.
    assert out.asked_s == 10.2
    assert out.took_s == pytest.approx(0.8 + 0.27, abs=0.05)
    assert back.took_s == pytest.approx(0.1 + 0.59, abs=0.05)


def test_few_rows_go_by_express_and_take_turns() -> None:
    engine = replace(TRIGGERED, express_s=0.02, noise=0.0)
    cluster = SimulatedCluster(hosts=1)
    few, many = (
        Simulation(load=Flat(rate), engine=engine, cluster=cluster, instances=2).run(30).epochs[-1].metrics
        for rate in (200, 5_000)
    )

    assert few.express
    assert few.took_s == pytest.approx(0.02 + 2 * 0.015 + 0.005, abs=0.01)
    assert not many.express
    assert many.took_s == pytest.approx(0.082 + 0.26 + 0.005, abs=0.02)


def test_keys_make_instances_differ() -> None:
    few, many = (
        Simulation(load=Flat(5_000), engine=TRIGGERED, cluster=SimulatedCluster(keys=keys), instances=4).run(30)
        for keys in (300, None)
    )

    assert few.epochs[-1].metrics.busy_s > 1.05 * many.epochs[-1].metrics.busy_s


def test_a_model_learns_what_the_driver_needs_by_instances_by_route_and_around_an_epoch() -> None:
    engine = EngineModel(
        overhead_s=0.1, per_instance_s=0.02, express_s=0.03, row_s=2e-3, fixed_s=0.01, cold_s=0.4, before_s=0.05,
        after_s=0.02, driver_noise=0.1, noise=0.02, trigger_s=1.0,
    )  # fmt: skip
    cluster = SimulatedCluster(hosts=1, cores=16)
    changes = [(60, 2), (120, 4), (180, 6), (240, 3), (300, 5), (360, 1)]
    run = Simulation(load=SHAPES["ramp"](100, 900), engine=engine, cluster=cluster, changes=changes).run(420)

    fitted = EngineModel.fitted([epoch.metrics for epoch in run.epochs], trigger_s=1.0)

    assert fitted.overhead_s == pytest.approx(0.1, abs=0.02)
    assert fitted.per_instance_s == pytest.approx(0.02, rel=0.2)
    assert fitted.express_s == pytest.approx(0.03, rel=0.2)
    assert fitted.row_s == pytest.approx(2e-3, rel=0.02)
    assert fitted.fixed_s == pytest.approx(0.01, abs=0.003)
    assert fitted.cold_s == pytest.approx(0.4, abs=0.1)
    assert fitted.before_s == pytest.approx(0.05, abs=0.02)
    assert fitted.after_s == pytest.approx(0.02, abs=0.02)
    assert fitted.noise == pytest.approx(0.02, abs=0.01)
    assert fitted.driver_noise == pytest.approx(0.1, abs=0.03)


def test_a_change_does_not_wait_for_a_trigger_that_is_far_off() -> None:
    engine = EngineModel(trigger_s=10.0, noise=0.0, cold_s=0.0)
    cluster = SimulatedCluster(hosts=1)
    run = Simulation(load=Flat(1_000), engine=engine, cluster=cluster, changes=[(32.0, 3)], instances=1).run(60)

    silent = [epoch.metrics for epoch in run.epochs if not epoch.metrics.rows and epoch.metrics.began_s > 1]
    # A second after the epoch before it would be too early for one that was asked for later.
    assert [round(epoch.began_s, 1) for epoch in silent] == [32.1]
    assert run.plans[0].took_s == pytest.approx(0.05 + 0.09, abs=0.06)
    # Rows wait for their trigger all the same.
    assert [round(epoch.metrics.began_s) for epoch in run.epochs if epoch.metrics.rows] == [0, 10, 20, 30, 40, 50]
