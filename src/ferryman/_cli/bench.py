"""`ferryman bench`: run a benchmark, print a table, and write JSON if asked.

The benchmarks are in the folder `bench/` of a source checkout, not in the installed package. Calls them
and nobody else.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

import ferryman
from ferryman._model.errors import InvalidConfiguration

app = typer.Typer(
    name="bench",
    help="Measure Ferryman beside what Spark itself offers, in one run.",
    no_args_is_help=True,
)

Json = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.", dir_okay=False)]
Instances = Annotated[int | None, typer.Option(min=1, help="Parallel instances; by default one per core.")]
Scratch = Annotated[Path | None, typer.Option(help="Directory for input and checkpoints; by default a temporary one.")]


def _load(name: str) -> ModuleType:
    root = Path(ferryman.__file__).resolve().parents[2]
    if not (root / "bench" / f"{name}.py").is_file():
        raise InvalidConfiguration(
            "The benchmarks are not part of the installed package. Clone the repository, run `make install` in "
            "it, and use the `ferryman` command of that checkout."
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(f"bench.{name}")


def _run(name: str, json: Path | None, **options: Any) -> dict[str, Any]:
    benchmark = _load(name)
    report = _load("report")
    result = benchmark.run(progress=report.Progress(), **options)
    benchmark.show_result(result)
    if json is not None:
        report.write_json(result, json)
        typer.echo(f"written to {json}")
    return dict(result)


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part.replace("_", "")) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers such as 10000,100000", param_hint=option)
    return numbers


def _names(text: str | None, known: tuple[str, ...], option: str) -> list[str]:
    names = text.split(",") if text else list(known)
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"{', '.join(unknown)}: not among {', '.join(known)}", param_hint=option)
    return names


@app.command()
def throughput(
    keys: Annotated[str, typer.Option(help="Numbers of keys, comma-separated; ratios are of the first.")] = "100000",
    rows: Annotated[int, typer.Option(min=2, help="Rows of an epoch.")] = 1_000_000,
    epochs: Annotated[int, typer.Option(min=1, help="Measured epochs, after one to warm up.")] = 5,
    slow_epochs: Annotated[int, typer.Option(min=1, help="The same for the engines that pay per key.")] = 1,
    slow_scale: Annotated[
        int, typer.Option(min=1, help="Divide their rows and keys by this; 1 gives all the same data.")
    ] = 1,
    slow_max_keys: Annotated[int, typer.Option(help="Leave them out above this many keys.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each engine; if several, one more to warm up.")] = 1,
    engines: Annotated[str | None, typer.Option(help="Engines to measure, comma-separated.")] = None,
    instances: Instances = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Rows per second of a count and a sum per key, every engine checked against a batch."""
    known = _load("throughput").ENGINES
    _run(
        "throughput", json, keys=_numbers(keys, "--keys"), rows=rows, epochs=epochs, slow_epochs=slow_epochs,
        slow_scale=slow_scale, slow_max_keys=slow_max_keys, rounds=rounds, engines=_names(engines, known, "--engines"),
        instances=instances, scratch=scratch,
    )  # fmt: skip


@app.command()
def joins(
    rows: Annotated[int, typer.Option(min=10, help="Rows of each stream.")] = 1_000_000,
    keys: Annotated[int, typer.Option(min=1, help="Keys they spread over.")] = 100_000,
    epochs: Annotated[int, typer.Option(min=3, help="Epochs in which they come.")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each engine, after one to warm up.")] = 2,
    engines: Annotated[str | None, typer.Option(help="Engines to measure, comma-separated.")] = None,
    instances: Instances = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Rows per second and bytes of state of an interval join of two streams, beside Spark's own stream-stream join."""
    _run(
        "joins", json, rows=rows, keys=keys, epochs=epochs, rounds=rounds,
        engines=_names(engines, _load("joins").ENGINES, "--engines"), instances=instances, scratch=scratch,
    )  # fmt: skip


@app.command()
def connectors(
    rows: Annotated[int, typer.Option(min=1, help="Rows that wait in the topic.")] = 500_000,
    per_epoch: Annotated[int, typer.Option(min=1, help="How many of them an epoch takes.")] = 50_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each engine, after one to warm up.")] = 2,
    rate: Annotated[float, typer.Option(min=1, help="Rows per second, for the latency.")] = 1000.0,
    seconds: Annotated[float, typer.Option(min=2, help="Seconds to measure that.")] = 20.0,
    warm: Annotated[float, typer.Option(min=1, help="Seconds to run before.")] = 10.0,
    kills: Annotated[int, typer.Option(min=0, help="How often a driver is killed.")] = 50,
    seed: Annotated[int, typer.Option(help="What the steps follow from at which it is.")] = 1,
    parts: Annotated[str | None, typer.Option(help="kafka, ingest, or both, comma-separated.")] = None,
    ingest_rows: Annotated[int, typer.Option(min=1, help="Messages that wait at an MQTT broker.")] = 50_000,
    ingest_kills: Annotated[int, typer.Option(min=0, help="How often driver, or driver and broker, are killed.")] = 20,
    instances: Instances = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """From Kafka to Kafka, exactly once, beside Spark's own; and the ingest log beside an MQTT broker; with kills."""
    _run(
        "connectors", json, rows=rows, per_epoch=per_epoch, rounds=rounds, rate=rate, seconds=seconds, warm=warm,
        kills=kills, seed=seed, parts=_names(parts, _load("connectors").PARTS, "--parts"), ingest_rows=ingest_rows,
        ingest_kills=ingest_kills, instances=instances, scratch=scratch,
    )  # fmt: skip


@app.command()
def epoch(
    rows: Annotated[int, typer.Option(min=1, help="Rows of an epoch.")] = 100,
    keys: Annotated[int, typer.Option(min=1, help="Keys they spread over.")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each contender, after one to warm up.")] = 4,
    epochs: Annotated[int, typer.Option(min=1, help="Measured epochs of a turn.")] = 60,
    warm: Annotated[int, typer.Option(min=0, help="Epochs dropped at the beginning of a turn.")] = 20,
    contenders: Annotated[str | None, typer.Option(help="Contenders to measure, comma-separated.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Draw what an epoch is made of into this PNG.")] = None,
    instances: Instances = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Time of a small epoch, beside a plain shuffle and beside nothing at all."""
    benchmark = _load("epoch")
    known, usual = tuple(benchmark.CONTENDERS), ",".join(benchmark.USUAL)
    _run(
        "epoch", json, rows=rows, keys=keys, rounds=rounds, epochs=epochs, warm=warm,
        contenders=_names(contenders or usual, known, "--contenders"), chart=trace, instances=instances,
        scratch=scratch,
    )  # fmt: skip


@app.command()
def latency(
    rate: Annotated[float, typer.Option(min=1, help="Rows per second, whatever happens.")] = 500.0,
    seconds: Annotated[float, typer.Option(min=2, help="Seconds to measure in a turn.")] = 20.0,
    warm: Annotated[float, typer.Option(min=1, help="Seconds to run before that.")] = 15.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each engine.")] = 3,
    engines: Annotated[str | None, typer.Option(help="Engines to measure, comma-separated.")] = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Latency of a row from when it is due to the commit of its epoch, beside Spark's own transformWithState."""
    _run(
        "row_latency", json, rate=rate, seconds=seconds, warm=warm, rounds=rounds,
        engines=_names(engines, _load("row_latency").ENGINES, "--engines"), scratch=scratch,
    )  # fmt: skip


@app.command()
def against(
    revision: Annotated[str, typer.Argument(help="The earlier code, by any name that git knows.")],
    benchmarks: Annotated[str | None, typer.Option(help="Which to run, comma-separated.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each.")] = 6,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Throughput, small epochs and changes of this code beside those of an earlier revision, in turns."""
    chosen = _names(benchmarks, tuple(_load("against").BENCHMARKS), "--benchmarks")
    _run("against", json, revision=revision, benchmarks=chosen, rounds=rounds, scratch=scratch)


@app.command()
def objects(
    rows: Annotated[int, typer.Option(min=1, help="Rows of an epoch.")] = 100,
    keys: Annotated[int, typer.Option(min=1, help="Keys they spread over.")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each place, after one to warm up.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Measured epochs of a turn.")] = 60,
    warm: Annotated[int, typer.Option(min=1, help="Epochs dropped at the beginning of a turn.")] = 20,
    instances: Instances = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Count the requests of an epoch whose checkpoint is in an object store, and measure it beside the local disk."""
    _run(
        "objects", json, rows=rows, keys=keys, rounds=rounds, epochs=epochs, warm=warm, instances=instances,
        scratch=scratch,
    )  # fmt: skip


@app.command()
def restart(
    mb: Annotated[int, typer.Option(min=1, help="Megabytes of state.")] = 300,
    size: Annotated[int, typer.Option("--bytes", min=1, help="Bytes of state per key.")] = 3000,
    rounds: Annotated[int, typer.Option(min=1, help="How often it is lost with each engine.")] = 5,
    engines: Annotated[str | None, typer.Option(help="Engines to measure, comma-separated.")] = None,
    instances: Instances = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Time until a job that has lost its driver goes on, beside Spark's own query after the same loss."""
    known = _load("driver_loss")
    _run(
        "driver_loss", json, mb=mb, size=size, rounds=rounds,
        engines=_names(engines, known.restart.ENGINES, "--engines"), instances=instances, scratch=scratch,
    )  # fmt: skip


@app.command()
def windows(
    rows: Annotated[int, typer.Option(min=2, help="Rows of an epoch.")] = 500_000,
    keys: Annotated[int, typer.Option(min=1, help="Keys they spread over.")] = 20_000,
    epochs: Annotated[int, typer.Option(min=1, help="Measured epochs, after three to warm up.")] = 10,
    epoch_s: Annotated[float, typer.Option(help="Seconds of event time in an epoch.")] = 4.0,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each engine; if several, the first is dropped.")] = 2,
    windows: Annotated[str | None, typer.Option(help="Windows to measure, comma-separated.")] = None,
    modes: Annotated[str | None, typer.Option(help="When they are put out, comma-separated.")] = None,
    instances: Instances = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Rows per second of declared windows, beside Spark's `groupBy(window)` inside the JVM."""
    benchmark = _load("windows")
    _run(
        "windows", json, rows=rows, keys=keys, epochs=epochs, epoch_s=epoch_s, rounds=rounds,
        windows=_names(windows, tuple(benchmark.WINDOWS), "--windows"),
        modes=_names(modes, benchmark.MODES, "--modes"), instances=instances, scratch=scratch,
    )  # fmt: skip


@app.command()
def growth(
    existing: Annotated[
        str, typer.Option(help="Numbers of keys that exist, comma-separated.")
    ] = "10000,100000,1000000",
    touched: Annotated[int, typer.Option(min=1, help="Keys that every measured epoch touches.")] = 10_000,
    rows: Annotated[int, typer.Option(min=2, help="Rows of a measured epoch.")] = 100_000,
    epochs: Annotated[int, typer.Option(min=1, help="Measured epochs.")] = 5,
    engines: Annotated[str, typer.Option(help="Engines to measure.")] = "ferryman_vectorised,spark_jvm",
    instances: Instances = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Time and memory of the same epoch while the number of keys that exist grows."""
    known = _load("throughput").ENGINES
    _run(
        "growth", json, existing=_numbers(existing, "--existing"), touched=touched, rows=rows, epochs=epochs,
        engines=_names(engines, known, "--engines"), instances=instances, scratch=scratch,
    )  # fmt: skip


@app.command()
def memory(
    keys: Annotated[int, typer.Option(min=1, help="Keys with state.")] = 10_000_000,
    size: Annotated[int, typer.Option("--bytes", min=1, help="Bytes of state per key.")] = 100,
    rows: Annotated[int, typer.Option(min=1, help="Rows of an epoch.")] = 500_000,
    kind: Annotated[str, typer.Option(help="columns (fixed width) or bytes (one value per key).")] = "columns",
    instances: Annotated[int, typer.Option(min=1, help="Parallel instances.")] = 2,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Memory of the Python workers while the state grows far beyond an epoch."""
    kind = _names(kind, ("columns", "bytes"), "--kind")[0]
    _run("memory", json, keys=keys, size=size, rows=rows, kind=kind, instances=instances, scratch=scratch)


@app.command()
def state(
    keys: Annotated[int, typer.Option(min=1, help="Keys with state.")] = 100_000,
    rows: Annotated[int, typer.Option(min=1, help="Rows of an epoch that updates them.")] = 100_000,
    epochs: Annotated[int, typer.Option(min=1, help="Measured epochs, after one to warm up.")] = 3,
    size: Annotated[int, typer.Option("--bytes", min=1, help="Bytes of a value of the type bytes.")] = 100,
    types: Annotated[str | None, typer.Option(help="Types to measure, comma-separated.")] = None,
    backends: Annotated[str | None, typer.Option(help="Stores to measure, comma-separated.")] = None,
    parts: Annotated[str | None, typer.Option(help="types, larger (than memory), or both, comma-separated.")] = None,
    limit_mb: Annotated[int, typer.Option(min=1, help="Memory for the part `larger`, in MB.")] = 256,
    larger: Annotated[float, typer.Option(min=0.001, help="How many times larger its state is.")] = 5,
    touches: Annotated[int, typer.Option(min=1, help="Epochs that touch keys all over it.")] = 20,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Every type of state on every store: updates, reads, moves, checkpoints, memory; and state larger than memory."""
    known = _load("state")
    _run(
        "state", json, keys=keys, rows=rows, epochs=epochs, size=size,
        types=_names(types, tuple(known.TYPES), "--types"), backends=_names(backends, known.BACKENDS, "--backends"),
        parts=_names(parts, known.PARTS, "--parts"), limit_mb=limit_mb, larger=larger, touches=touches,
        scratch=scratch,
    )  # fmt: skip


@app.command()
def reconfigure(
    keys: Annotated[int, typer.Option(min=2, help="Keys with state.")] = 2000,
    size: Annotated[int, typer.Option("--bytes", min=1, help="Bytes of state per key.")] = 10_000,
    rate: Annotated[float, typer.Option(min=1, help="Rows per second, whatever happens.")] = 500,
    skew: Annotated[float, typer.Option(min=0, help="Zipf exponent of the keys; 0 for all alike.")] = 0,
    work_ms: Annotated[float, typer.Option(min=0, help="How long a row takes.")] = 0,
    interval_ms: Annotated[
        int, typer.Option(min=0, help="How often an epoch begins; 0 for one after the other.")
    ] = 1000,
    hosts: Annotated[int, typer.Option(min=2, help="Hosts, with an instance each.")] = 2,
    groups: Annotated[int, typer.Option(min=2, help="Key groups.")] = 64,
    link_mbit: Annotated[float | None, typer.Option(min=0.1, help="What the line out of a host carries.")] = None,
    delay_ms: Annotated[float, typer.Option(min=0, help="How long everything on it is on its way.")] = 0,
    before: Annotated[float, typer.Option(min=2, help="Seconds to watch before a change.")] = 15,
    after: Annotated[float, typer.Option(min=2, help="Seconds to watch after it.")] = 15,
    warm: Annotated[float, typer.Option(min=0, help="Seconds to wait before all that.")] = 20,
    strategies: Annotated[
        str | None, typer.Option(help="Strategies to run, comma-separated; all, unless another part is asked for.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Run live with so much moving state instead, such as 10MB,100MB,1GB.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="Run push and its rivals over values of bytes, keys or hosts, such as keys=1000,2000."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Changes with each; the medians are what counts.")] = 1,
    still: Annotated[
        bool, typer.Option("--still", help="After each of --sizes, watch as long again while nothing is changed.")
    ] = False,
    idle: Annotated[int, typer.Option(min=0, help="Measure so often what it costs to be ready for a change.")] = 0,
    chart: Annotated[Path | None, typer.Option(help="Draw the latency into this PNG, with a CSV beside it.")] = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Latency of every row while state moves from host to host, and beside it Spark's own way."""
    bench = _load("reconfigure")
    others = bool(sizes or sweep or idle)
    names = _names(strategies, bench.STRATEGIES, "--strategies") if strategies or not others else []
    load = bench.Load(
        keys, size, rate, skew, work_ms, interval_ms, hosts, groups, link_mbit, delay_ms, before, after, warm
    )  # fmt: skip
    if groups < 4 * hosts:
        raise typer.BadParameter(f"{groups} are too few: give four to a host, {4 * hosts}", param_hint="--groups")
    _run(
        "reconfigure", json, load=load, strategies=names, sizes=_sizes(sizes, "--sizes") if sizes else [],
        sweeps=_sweeps(sweep or [], bench.SWEEPS), rounds=rounds, still=still, idle=idle, chart=chart,
        scratch=scratch,
    )  # fmt: skip


@app.command()
def recovery(
    parts: Annotated[str | None, typer.Option(help="What is lost: executor, replicas, comma-separated.")] = None,
    size: Annotated[str, typer.Option("--bytes", help="How much state there is, such as 100MB or 1GB.")] = "1GB",
    keys: Annotated[int, typer.Option(min=64, help="Keys.")] = 100_000,
    rate: Annotated[float, typer.Option(min=1, help="Rows per second, whatever happens.")] = 1000,
    interval_ms: Annotated[int, typer.Option(min=0, help="How often an epoch begins.")] = 1000,
    losses: Annotated[int, typer.Option(min=1, help="Executors that are lost in turn; the medians count.")] = 3,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """How soon everything processes again when an executor is lost, with replicas and without, and beside Spark."""
    known = _load("recovery_executor")
    _run(
        "recovery_executor", json, parts=_names(parts, known.PARTS, "--parts"), bytes=_sizes(size, "--bytes")[0],
        keys=keys, rate=rate, interval_ms=interval_ms, losses=losses, scratch=scratch,
    )  # fmt: skip


@app.command()
def replay(
    strategies: Annotated[str | None, typer.Option(help="Ways to recover, comma-separated.")] = None,
    rates: Annotated[str, typer.Option(help="Words per second, comma-separated.")] = "1000,4000,16000",
    snapshot_s: Annotated[
        str, typer.Option("--snapshot-s", help="Seconds between two snapshots, comma-separated.")
    ] = "1,5,30",
    window: Annotated[int, typer.Option(min=15, help="Seconds of a window.")] = 30,
    vocabulary: Annotated[int, typer.Option(min=64, help="How many words there are.")] = 10_000,
    losses: Annotated[int, typer.Option(min=1, help="How often each loses a host; the medians count.")] = 2,
    chart: Annotated[Path | None, typer.Option(help="Draw the times into this PNG.")] = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """How soon a windowed word count processes again when a host is lost: state kept, or its rows replayed."""
    known = _load("replay")
    _run(
        "replay", json, strategies=_names(strategies, known.STRATEGIES, "--strategies"),
        rates=_numbers(rates, "--rates"), snapshot_s=_numbers(snapshot_s, "--snapshot-s"), window=window,
        vocabulary=vocabulary, losses=losses, chart=chart, scratch=scratch,
    )  # fmt: skip


@app.command()
def elastic(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long the load grows tenfold, and shrinks again.")] = 5.0,
    seconds: Annotated[
        float | None, typer.Option(min=100, help="How long the whole trace is instead; all that waits, waits shorter.")
    ] = None,
    contenders: Annotated[
        str | None, typer.Option(help="Who runs the trace, comma-separated; none for simulated time alone.")
    ] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw latency and instances into this PNG.")] = None,
    together: Annotated[bool, typer.Option(help="All at the same time, not one after the other.")] = False,
    add: Annotated[Path | None, typer.Option(help="Show the contenders of this earlier result beside them.")] = None,
    flat_hours: Annotated[float, typer.Option(min=0, help="Simulated hours of flat load, at ten rates.")] = 1.0,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Latency and instance-seconds while load grows tenfold and shrinks: the autoscaler, and others' rules."""
    known = _load("elastic").CONTENDERS
    _run(
        "elastic", json, minutes=minutes, seconds=seconds,
        contenders=[] if contenders == "none" else _names(contenders, known, "--contenders"),
        together=together, chart=chart, add=add, flat_hours=flat_hours, scratch=scratch,
    )  # fmt: skip


@app.command()
def simulation(
    scenarios: Annotated[str | None, typer.Option(help="Which to predict and run, comma-separated.")] = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Predict latency and changes of a job by the simulation, then run the same job, and give the error."""
    known = tuple(_load("simulation").SCENARIOS)
    _run("simulation", json, scenarios=_names(scenarios, known, "--scenarios"), scratch=scratch)


def _sizes(text: str, option: str) -> list[int]:
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    found = [re.fullmatch(r"(\d+(?:\.\d+)?)(KB|MB|GB)", part.strip()) for part in text.split(",")]
    if not all(found):
        raise typer.BadParameter(f"{text!r} is not a list of sizes such as 10MB,100MB,1GB", param_hint=option)
    return [round(float(size[1]) * units[size[2]]) for size in found if size]


def _sweeps(texts: list[str], known: tuple[str, ...]) -> dict[str, list[int]]:
    found = {}
    for text in texts:
        name, _, values = text.partition("=")
        found[_names(name, known, "--sweep")[0]] = _numbers(values, "--sweep")
    return found
