"""The disk that forgets: what was synced is there after a power cut, and whatever was not may be anything."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ferryman._log.files.directory import LocalDirectory
from ferryman._model.errors import CheckpointUnwritable
from ferryman._testing.faulty_disk import Death, FaultyDisk
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk, disk_environment

SEEDS = range(60)


class World:
    """A root, and what is found in it after power cuts of many seeds; each begins anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = 0

    def after(self, act: Callable[[Path, UnsyncedDisk], None]) -> list[dict[str, bytes]]:
        found = []
        for seed in SEEDS:
            self._turn += 1
            root, journal = self._path / str(self._turn) / "root", self._path / str(self._turn) / "journal"
            root.mkdir(parents=True)
            disk = UnsyncedDisk(root, journal)
            act(root, disk)
            disk.close()
            power_cut(root, journal, seed)
            assert not journal.exists()
            found.append({str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()})
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_bytes_that_were_not_synced_are_whole_torn_zero_or_gone(world: World) -> None:
    def act(root: Path, disk: UnsyncedDisk) -> None:
        disk.create(str(root / "one"), b"x" * 1000, sync=False)
        disk.sync(str(root))

    found = [files["one"] for files in world.after(act)]

    assert b"" in found
    assert b"x" * 1000 in found
    assert any(0 < len(data) < 1000 for data in found), "none was cut off"
    assert any(len(data) == 1000 and data.count(0) for data in found), "none had zeros"


def test_a_name_that_was_not_synced_may_be_missing_though_its_bytes_were(world: World) -> None:
    found = world.after(lambda root, disk: disk.create(str(root / "one"), b"x" * 9, sync=True))

    assert {files.get("one") for files in found} == {None, b"x" * 9}


def test_what_was_synced_is_there(world: World) -> None:
    def act(root: Path, disk: UnsyncedDisk) -> None:
        disk.mkdir(str(root / "folder"))
        disk.sync(str(root))
        disk.create(str(root / "folder/one"), b"x" * 9, sync=True)
        disk.sync(str(root / "folder"))

    assert world.after(act) == [{"folder/one": b"x" * 9}] * len(SEEDS)


def test_a_folder_whose_name_was_not_synced_takes_what_is_in_it_along(world: World) -> None:
    def act(root: Path, disk: UnsyncedDisk) -> None:
        disk.mkdir(str(root / "folder"))
        disk.create(str(root / "folder/one"), b"x", sync=True)
        disk.sync(str(root / "folder"))

    found = world.after(act)

    assert {} in found
    assert {"folder/one": b"x"} in found


def test_renames_links_and_removals_may_or_may_not_have_happened_each_for_itself(world: World) -> None:
    def act(root: Path, disk: UnsyncedDisk) -> None:
        for name in ("a", "b", "c"):
            disk.create(str(root / name), name.encode(), sync=True)
        disk.sync(str(root))
        disk.replace(str(root / "a"), str(root / "b"))
        disk.link(str(root / "c"), str(root / "d"))
        disk.unlink(str(root / "c"))

    found = world.after(act)

    assert {files["b"] for files in found} == {b"a", b"b"}, "a name that is replaced always stands for one of the two"
    assert {(files.get("c"), files.get("d")) for files in found} == {
        (b"c", None), (b"c", b"c"), (None, b"c"), (None, None),
    }  # fmt: skip


def test_a_name_that_was_given_and_taken_many_times_may_be_any_of_them(world: World) -> None:
    def act(root: Path, disk: UnsyncedDisk) -> None:
        for text in (b"1", b"2", b"3"):
            disk.create(str(root / "t"), text, sync=True)
            disk.replace(str(root / "t"), str(root / "one"))

    assert {files.get("one") for files in world.after(act)} == {None, b"1", b"2", b"3"}


def test_files_of_others_are_never_synced_unless_the_disk_was_told_to(world: World) -> None:
    def act(root: Path, disk: UnsyncedDisk) -> None:
        for name in ("told", "untold"):
            (root / name).mkdir()
            (root / name / "one").write_bytes(b"x" * 9)
        disk.sync(str(root / "told/one"))
        disk.sync(str(root / "told"))
        disk.sync(str(root))

    found = world.after(act)

    assert all(files["told/one"] == b"x" * 9 for files in found)
    assert {files.get("untold/one") for files in found} >= {None, b"", b"x" * 9}


def test_what_was_there_when_the_journal_began_stays(tmp_path: Path) -> None:
    root, journal = tmp_path / "root", tmp_path / "journal"
    (root / "folder").mkdir(parents=True)
    (root / "folder/one").write_bytes(b"x")
    for seed in SEEDS:
        UnsyncedDisk(root, journal).close()
        power_cut(root, journal, seed)

    assert (root / "folder/one").read_bytes() == b"x"


def test_processes_share_a_journal_and_choose_the_disk_by_the_environment(tmp_path: Path) -> None:
    root, journal = tmp_path / "root", tmp_path / "journal"
    root.mkdir()
    script = (
        "import sys; from pathlib import Path; from ferryman._log.files.directory import LocalDirectory\n"
        "place = LocalDirectory(Path(sys.argv[1]) / 'checkpoint', fsync=sys.argv[2] == 'synced')\n"
        # Either may make the folder that both are in.
        "place.keep([sys.argv[2]])\n"
        "for number in range(20): place.write(f'{sys.argv[2]}/{number}', b'x' * 100)\n"
    )
    environment = {**os.environ, **disk_environment(root, journal)}
    UnsyncedDisk(root, journal).close()
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(root), kind], env=environment)
        for kind in ("synced", "unsynced")
    ]
    assert [process.wait() for process in running] == [0, 0]
    # With any luck at all some of what was not synced is gone.
    power_cut(root, journal, 1)

    kept = {
        kind: [(root / "checkpoint" / kind / str(number)) for number in range(20)] for kind in ("synced", "unsynced")
    }
    assert all(file.read_bytes() == b"x" * 100 for file in kept["synced"])
    assert not all(file.exists() and file.read_bytes() == b"x" * 100 for file in kept["unsynced"])


@pytest.mark.parametrize("fsync", [True, False])
def test_a_directory_keeps_its_word_if_it_syncs_and_is_caught_if_it_does_not(world: World, fsync: bool) -> None:
    def act(root: Path, disk: UnsyncedDisk) -> None:
        place = LocalDirectory(root / "above" / "place", fsync=fsync, disk=disk)
        place.write("folder/one", b"x" * 99)
        assert place.write_new("folder/two", b"y" * 99)
        place.write("three", b"z" * 99)

    whole = {"above/place/folder/one": b"x" * 99, "above/place/folder/two": b"y" * 99, "above/place/three": b"z" * 99}
    kept = [whole.items() <= files.items() for files in world.after(act)]

    assert all(kept) if fsync else kept.count(False) > len(kept) // 2


def test_files_of_others_that_a_directory_syncs_stay_with_the_folders_above_them(world: World) -> None:
    names = ["spark/offsets/7", "spark/sources/0/7", "spark/sources/1/7"]

    def act(root: Path, disk: UnsyncedDisk) -> None:
        place = LocalDirectory(root / "place", fsync=True, disk=disk)
        place.keep(["folder"])
        place.write("one", b"x")
        place.sync(["one"])
        # Each in a folder that is new, though the one above it was synced before.
        for name in names:
            (root / "place" / name).parent.mkdir(parents=True)
            (root / "place" / name).write_bytes(b"x" * 99)
            place.sync([name, "spark/offsets/8"])

    assert all(files[f"place/{name}"] == b"x" * 99 for files in world.after(act) for name in names)


def test_what_a_directory_deletes_does_not_come_back_after_what_it_deletes_next_is_gone(world: World) -> None:
    def act(root: Path, disk: UnsyncedDisk) -> None:
        place = LocalDirectory(root / "place", fsync=True, disk=disk)
        place.write("manifests/1", b"x")
        place.write("deltas/1", b"x")
        place.delete(["manifests/1"])
        disk.unlink(str(root / "place/deltas/1"))

    found = [set(files) for files in world.after(act)]

    assert set() in found
    assert {"place/deltas/1"} in found
    assert not any("place/manifests/1" in names for names in found)


# -- trouble ---------------------------------------------------------------------------------------


def test_a_death_at_each_call_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    seen = set()
    for call in range(1, 20):
        place = tmp_path / str(call)
        LocalDirectory(place).write("one", b"old" * 10)
        disk = FaultyDisk(UnsyncedDisk(tmp_path, tmp_path / "journal"), die_at=call)
        try:
            LocalDirectory(place, fsync=True, disk=disk).write("one", b"new" * 10)
        except Death:
            with pytest.raises(Death):
                disk.list(str(place))
        seen.add((disk.dead, (place / "one").read_bytes(), len(list(place.iterdir()))))

    # Old and alone, old beside a new one that has no name yet, new before and after it was synced.
    assert seen == {
        (True, b"old" * 10, 1), (True, b"old" * 10, 2), (True, b"new" * 10, 1), (False, b"new" * 10, 1),
    }  # fmt: skip


def test_a_disk_that_fills_up_refuses_and_takes_more_when_there_is_room(tmp_path: Path) -> None:
    disk = FaultyDisk(UnsyncedDisk(tmp_path, tmp_path / "journal"), space=100)
    place = LocalDirectory(tmp_path / "place", disk=disk)
    place.write("one", b"x" * 60)

    with pytest.raises(CheckpointUnwritable, match="No space left on device"):
        place.write("two", b"x" * 60)
    assert place.list("") == ["one"]
    disk.space = None
    place.write("two", b"x" * 60)
    assert place.list("") == ["one", "two"]


@pytest.mark.parametrize("lost", [errno.EIO, errno.EEXIST])
def test_a_reply_that_is_lost_says_that_what_was_done_was_not(tmp_path: Path, lost: int) -> None:
    disk = FaultyDisk(UnsyncedDisk(tmp_path, tmp_path / "journal"), lost_reply_at=2, lost_as=lost)
    disk.create(str(tmp_path / "one"), b"x", sync=False)
    disk.link(str(tmp_path / "one"), str(tmp_path / "two"))

    with pytest.raises(OSError, match=os.strerror(lost)):
        disk.link(str(tmp_path / "one"), str(tmp_path / "three"))
    assert (tmp_path / "three").read_bytes() == b"x"


def test_a_name_may_come_late(tmp_path: Path) -> None:
    disk = FaultyDisk(UnsyncedDisk(tmp_path, tmp_path / "journal"), late=1)
    place = LocalDirectory(tmp_path / "place", disk=disk)
    for name in ("1", "2"):
        place.write(f"folder/{name}", b"x")

    assert place.list("folder") == ["1"]
    assert place.list("folder") == ["1", "2"]


def test_a_file_that_is_moved_is_in_one_folder_or_the_other_after_a_power_cut(world: World) -> None:
    turn = itertools.count()

    def act(root: Path, disk: UnsyncedDisk) -> None:
        place = LocalDirectory(root / "place", fsync=True, disk=disk)
        place.keep(["aside"])
        place.write("aside/rows", b"x" * 99)
        # It dies at each of its calls in turn.
        dying = LocalDirectory(root / "place", fsync=True, disk=FaultyDisk(disk, die_at=next(turn) % 8))
        with contextlib.suppress(Death):
            dying.move({"aside/rows": "rows"})

    for found in world.after(act):
        assert b"x" * 99 in (found.get("place/aside/rows"), found.get("place/rows"))
