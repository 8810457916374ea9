"""How fast a state host sends, and work that it lets a thread of its own do."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from ferryman._serve.throttle import Throttle, aside

PIECE = pa.record_batch({"rows": pa.array([b"x" * 10_000])})


def sent(line: Throttle, count: int) -> float:
    began = time.monotonic()
    assert len(list(line.sent(iter([PIECE] * count)))) == count
    return time.monotonic() - began


def test_all_streams_of_a_host_share_its_line():
    line = Throttle(bytes_per_s=200_000)

    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        for stream in [threads.submit(sent, line, 2) for _ in range(2)]:
            stream.result()

    assert time.monotonic() - began >= 4 * PIECE.nbytes / 200_000


def test_a_delay_is_paid_for_the_request_and_the_answer_and_not_for_every_piece():
    took = sent(Throttle(None, delay_s=0.1), 20)

    assert 0.2 <= took < 20 * 0.1


def test_what_is_made_aside_comes_in_order_and_so_does_what_goes_wrong():
    def items():
        yield from range(5)
        raise ValueError("the end of it")

    found = aside(items(), low=False)
    assert [next(found) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="the end of it"):
        next(found)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads have a priority of their own on Linux")
def test_work_of_low_priority_is_done_by_a_thread_that_is_not_used_for_anything_else():
    def priorities():
        yield os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert list(aside(priorities(), low=True)) == [19]
    assert list(aside(priorities(), low=False)) == [mine]


def test_work_that_nobody_takes_any_more_ends():
    ended = threading.Event()

    def items():
        try:
            while True:
                yield 1
        finally:
            ended.set()

    made = items()
    found = aside(made, low=False)
    next(found)
    found.close()

    assert ended.wait(10)
