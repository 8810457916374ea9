"""Settings that are wrong: all of them are reported at once, before anything is written, with what to do."""

from __future__ import annotations

import pytest
from readings import NAME, ONCE, Readings, Trail, check_message

from ferryman import Ferry, aggregates, sinks
from ferryman.errors import InvalidConfiguration, MissingDelta, UnfencedStorage, UnknownOption


@pytest.mark.parametrize(
    ("option", "near"),
    [("snapshots_every", "snapshot_every"), ("retention", "retain"), ("group", "groups"), ("colour", None)],
)
def test_an_unknown_option_of_a_ferry_is_named_with_the_nearest_there_is(spark, tmp_path, option, near):
    with pytest.raises(UnknownOption) as caught:
        Ferry(spark, str(tmp_path / "c"), **{option: 3})

    says = [
        f"Ferry has no option '{option}'" + (rf" \(did you mean '{near}'\?\)" if near else r"\."),
        "It has: .*fsync",
    ]
    check_message(caught.value, UnknownOption, says)


def test_an_unknown_option_of_a_start_is_named_with_the_nearest_there_is(spark, tmp_path):
    job = Readings(spark, tmp_path)

    with pytest.raises(UnknownOption) as caught:
        job.run(instance=2, triger=ONCE)

    says = ["start has no option 'instance'.*'instances'", "'triger'.*'trigger'", "It has: .*instances, trigger"]
    check_message(caught.value, UnknownOption, says)
    assert not job.checkpoint.exists()
    job.run()
    job.assert_right()


def test_all_wrong_settings_of_a_ferry_are_reported_at_once():
    with pytest.raises(InvalidConfiguration) as caught:
        Ferry("spark", "", groups=0, retain="all", snapshot_every=0, idle="soon", home=7, fsync="yes")

    says = ["8 settings are wrong", "spark='spark'", "groups=0", "retain='all'", "snapshot_every=0", "idle='soon'"]
    check_message(caught.value, InvalidConfiguration, [*says, "checkpoint=''", "home=7", "fsync='yes'", "Write it as"])


@pytest.mark.parametrize("checkpoint", ["", "  ", None, 42, b"bytes", ["a"]])
def test_a_checkpoint_that_is_no_path_is_refused(spark, tmp_path, monkeypatch, checkpoint):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidConfiguration, match=r"1 setting is wrong.*\n.*checkpoint=.*: give a directory"):
        Ferry(spark, checkpoint)

    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_may_be_a_path_object(spark, tmp_path):
    job = Readings(spark, tmp_path)
    stream = Ferry(spark, job.checkpoint, idle=None).stream(job.frame()).key_by("key").process(Trail)

    stream.write(job.sink).start(NAME, trigger=ONCE).wait()

    job.assert_right()


@pytest.mark.parametrize(
    "option",
    [
        {"groups": -1}, {"groups": 40_000}, {"groups": True}, {"groups": 2.5}, {"retain": 0}, {"snapshot_every": None},
        {"idle": "5 parsecs"}, {"idle": "1.2.3 seconds"}, {"idle": -1}, {"idle": True}, {"idle": float("inf")},
        {"idle": ["1 s"]}, {"home": " "}, {"replicas": -1}, {"replicas": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_setting_of_a_ferry_is_named_with_its_value(spark, tmp_path, option):
    ((name, value),) = option.items()

    with pytest.raises(InvalidConfiguration) as caught:
        Ferry(spark, str(tmp_path / "c"), **option)

    assert f"{name}={value!r}: " in str(caught.value)


@pytest.mark.parametrize("instances", [0, -1, 2.0, "two", True], ids=repr)
def test_instances_that_are_no_count_are_refused_before_the_checkpoint_is_made(spark, tmp_path, instances):
    job = Readings(spark, tmp_path)

    with pytest.raises(InvalidConfiguration) as caught:
        job.run(instances=instances)

    check_message(caught.value, InvalidConfiguration, [f"instances={instances!r}: give a whole number, 1 at the least"])
    assert not job.checkpoint.exists()


def test_more_instances_than_key_groups_are_refused_and_settle_nothing(spark, tmp_path):
    job = Readings(spark, tmp_path)

    with pytest.raises(InvalidConfiguration) as caught:
        job.run(instances=9)

    says = ["instances=9: the job has 8 key groups", "from 1 to 8, or start a new checkpoint with more groups"]
    check_message(caught.value, InvalidConfiguration, says)
    # The refused start has not fixed the number of key groups: as many as instances are fine now.
    job.run(job.stream(groups=9).key_by("key").process(Trail), instances=9)
    job.assert_right()


def test_all_wrong_arguments_of_a_start_are_reported_at_once(spark, tmp_path):
    ferry = Readings(spark, tmp_path).ferry()

    with pytest.raises(InvalidConfiguration) as caught:
        ferry.start("", instances=0, trigger="now")

    says = ["4 settings are wrong", "name=''", "outputs: give one", "instances=0", "trigger='now'.*availableNow"]
    check_message(caught.value, InvalidConfiguration, says)


def test_what_is_no_output_is_refused(spark, tmp_path):
    job = Readings(spark, tmp_path)

    with pytest.raises(InvalidConfiguration, match=r"outputs: give one at the least; .*stream\.write"):
        job.ferry().start(NAME, job.trail())


@pytest.mark.parametrize(
    "trigger", [{"processingTime": "often"}, {"continuous": "1 second"}, {"availableNow": True, "once": True}], ids=str
)
def test_a_trigger_that_cannot_be_is_refused_and_the_checkpoint_is_free_again(spark, tmp_path, trigger):
    job = Readings(spark, tmp_path)

    with pytest.raises(InvalidConfiguration, match=r"trigger=\{.*(availableNow)"):
        job.run(trigger=trigger)

    job.run()
    job.assert_right()


def test_a_batch_is_no_stream(spark, tmp_path):
    ferry = Readings(spark, tmp_path).ferry()

    with pytest.raises(InvalidConfiguration, match=r"this one is a batch\. Use spark\.readStream instead"):
        ferry.stream(spark.range(3))
    with pytest.raises(InvalidConfiguration, match="needs a streaming DataFrame, and got 'files'"):
        ferry.stream("files")


def test_a_job_without_an_operator_is_refused(spark, tmp_path):
    job = Readings(spark, tmp_path)

    with pytest.raises(InvalidConfiguration, match=r"no operator with state\. Add \.key_by"):
        job.run(job.stream().where("id > 3"))

    assert not job.checkpoint.exists()


def test_two_operators_of_one_name_are_refused(spark, tmp_path):
    job = Readings(spark, tmp_path)
    stream = job.stream()
    outputs = [
        stream.key_by("key").process(Trail).write(sinks.none()),
        stream.key_by("key").aggregate(name="Trail", n=aggregates.count()).write(sinks.none()),
    ]

    with pytest.raises(InvalidConfiguration, match=r"two operators are called 'Trail'\. Give one .*name="):
        job.ferry().start(NAME, *outputs, trigger=ONCE)

    assert not job.checkpoint.exists()


def test_two_jobs_of_one_name_in_a_session_are_told_apart_by_an_error(spark, tmp_path):
    first = Readings(spark, tmp_path / "1", epochs=1)
    second = Readings(spark, tmp_path / "2", epochs=1)
    running = first.start(trigger=None)
    try:
        assert running.wait_for(lambda: running.epoch == 1, timeout=120)
        with pytest.raises(InvalidConfiguration, match=r"called 'readings' already runs in this session\. Stop it, or"):
            second.run()
    finally:
        running.stop()
    second.run()
    second.assert_right()


def test_storage_that_cannot_keep_two_drivers_apart_is_refused(spark, tmp_path):
    stream = Readings(spark, tmp_path).frame()

    def start(**options):
        ferry = Ferry(spark, "mock:///checkpoint", **options)
        return ferry.stream(stream).key_by("key").process(Trail).write(sinks.none()).start(NAME, trigger=ONCE)

    with pytest.raises(UnfencedStorage) as caught:
        start()
    says = [
        "mock:///checkpoint",
        "Two drivers on it could commit the same epoch",
        r"single_driver=True",
        r"\[objects\]",
    ]
    check_message(caught.value, UnfencedStorage, says)
    # With one's word it goes on, to where this storage shows: it is another one in each process.
    with pytest.raises(MissingDelta):
        start(single_driver=True).wait()
