"""Homes: for their user alone wherever they are, kept while somebody lives in them, and clear about a full disk."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ferryman import Operator, Value
from ferryman._engine import home as homes
from ferryman._engine.home import home, move_out, settle
from ferryman._os.user_directory import own_directory
from ferryman.errors import HomeUnwritable, InvalidConfiguration
from ferryman.testing import Harness

PLACES = ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS")


@pytest.fixture(autouse=True)
def anew():
    homes._owned.cache_clear()
    yield
    for place in list(homes._settled):
        move_out(place)


@pytest.fixture(params=["home=", *PLACES])
def somewhere(request, tmp_path, monkeypatch):
    """A directory for homes, and what to give for it."""
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    if request.param == "home=":
        return tmp_path / "local", str(tmp_path / "local")
    monkeypatch.setenv(request.param, f"{tmp_path / 'local'},/elsewhere")
    return tmp_path / "local", None


def test_a_home_is_for_its_user_alone_wherever_it_is(somewhere):
    place, configured = somewhere
    place.mkdir(mode=0o755)
    (place / f"ferryman-{os.getuid()}").mkdir()
    (place / f"ferryman-{os.getuid()}").chmod(0o777)

    found = home("/checkpoint", "run", configured)
    settle(found)

    assert place in found.parents
    for each in (found, found.parent, found.parent.parent):
        assert each.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in found.iterdir()} == {0o600}


def test_a_directory_of_somebody_else_is_refused(somewhere, monkeypatch):
    place, configured = somewhere
    (place / f"ferryman-{os.getuid() + 1}").mkdir(parents=True)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)

    with pytest.raises(InvalidConfiguration, match="belongs to somebody else"):
        home("/checkpoint", "run", configured)


def test_a_link_is_refused(somewhere, tmp_path):
    place, configured = somewhere
    place.mkdir()
    (tmp_path / "theirs").mkdir()
    (place / f"ferryman-{os.getuid()}").symlink_to(tmp_path / "theirs")

    with pytest.raises(InvalidConfiguration, match="belongs to somebody else"):
        home("/checkpoint", "run", configured)


def test_a_place_where_everybody_may_rename_is_refused(somewhere):
    place, configured = somewhere
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(InvalidConfiguration, match="sticky bit"):
        home("/checkpoint", "run", configured)

    place.chmod(0o1777)
    assert home("/checkpoint", "run", configured).parent.parent == own_directory(place)


def test_a_run_removes_homes_that_nobody_lives_in_and_no_others(tmp_path):
    mine, living, left = (home("/checkpoint", run, str(tmp_path)) for run in ("mine", "living", "left"))
    for place in (living, left):
        place.mkdir(parents=True)
        (place / "state").write_text("x")
    # As a worker of another container would: it sees the same directory and has the same path for its checkpoint.
    program = (
        "import sys, pathlib; from ferryman._engine.home import settle\n"
        "settle(pathlib.Path(sys.argv[1])); print('settled', flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(living)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "settled\n"
        # It has taken the one that was left for just that.
        assert not left.exists()
        left.mkdir()

        settle(mine)

        assert (living / "state").read_text() == "x"
        assert not left.exists()
    finally:
        other.kill()
        other.wait()
    settle(mine)
    assert not living.exists()
    assert mine.exists()


def test_a_home_that_is_removed_while_one_moves_in_is_made_again(tmp_path, monkeypatch):
    mine, opened, taken = home("/checkpoint", "mine", str(tmp_path)), os.open, []

    def late(path, *rest, **more):
        # Another run took it for left, just before.
        if str(path).startswith(str(mine)) and not taken:
            taken.append(path)
            mine.rmdir()
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", late)
    settle(mine)

    assert taken
    assert mine.exists()


class Many(Operator):
    n = Value(int, 0)
    output = "key string"

    def process(self, key, row):
        self.n += 1


def test_a_full_disk_under_the_home_is_named():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = [(f"key-{number}",) for number in range(300)]
    with Harness(lambda stream: stream.key_by("key").process(Many), "key string", instances=1) as harness:
        harness.epoch(rows)
        # No file may grow beyond this: a delta is smaller, a main copy larger.
        resource.setrlimit(resource.RLIMIT_FSIZE, (14 << 10, hard))
        try:
            with pytest.raises(HomeUnwritable, match=r"the home .*ferryman-.* cannot be written: File too large"):
                harness.epoch(rows)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        harness.epoch(rows)
        assert {row["n"] for row in harness.state()} == {2}


def test_a_home_that_refuses_is_told_from_other_failures(tmp_path):
    class DiskError(Exception):
        pass

    with pytest.raises(HomeUnwritable, match="No space left on device"), homes.writable(Path("/disk")):
        raise DiskError("mdb_put: No space left on device")
    with pytest.raises(DiskError), homes.writable(tmp_path):
        raise DiskError("mdb_put: bad transaction")
