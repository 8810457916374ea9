"""Spark's log on the driver's disk, and the copy of it that counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.spark_log.spark_log_copy import SparkLogCopy
from ferryman.errors import InvalidConfiguration, Superseded


def begun(root: Path, name: str = "first", newest: bool = True) -> tuple[SparkLogCopy, Path]:
    """Begin a run on a machine of its own; give also where Spark writes."""

    def look() -> None:
        if not newest:
            raise Superseded("taken over")

    copy = SparkLogCopy(Checkpoint(LocalDirectory(root / "store")), root / name, look)
    copy.fetch()
    place = Path(copy.uri.removeprefix("file://"))
    return copy, place


def write(place: Path, **files: str) -> None:
    for name, text in files.items():
        path = place / name.replace("_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def files(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_another_machine_begins_with_what_was_brought_and_nothing_else(tmp_path: Path):
    copy, place = begun(tmp_path)
    write(place, metadata="id", sources_0_0="files", offsets_0="from 0")
    (place / "offsets" / ".0.crc").write_text("sums")
    copy.keep()
    write(place, commits_0="done", offsets_1="begun, and killed before it was brought")

    (tmp_path / "second" / "spark").mkdir(parents=True)
    (tmp_path / "second" / "spark" / "left").write_text("behind")
    _, other = begun(tmp_path, "second")
    assert files(other) == {"metadata": "id", "sources/0/0": "files", "offsets/0": "from 0"}


def test_what_spark_forgets_is_forgotten(tmp_path: Path):
    copy, place = begun(tmp_path)
    write(place, offsets_0="0", commits_0="0", offsets_1="1")
    copy.keep()
    copy, place = begun(tmp_path, "second")
    (place / "offsets" / "0").unlink()
    write(place, offsets_2="2")
    copy.keep()
    assert files(tmp_path / "store" / "spark") == {"offsets/1": "1", "offsets/2": "2", "commits/0": "0"}


def test_what_somebody_else_removes_from_the_disk_is_not_forgotten(tmp_path: Path):
    # As those do who clean up where nothing has changed for days.
    copy, place = begun(tmp_path)
    write(place, metadata="id", sources_0_9="", sources_0_8="", sources_1_0="from", offsets_0="0", commits_0="0")
    (place / "sources" / "0" / "9").rename(place / "sources" / "0" / "9.compact")
    copy.keep()
    kept = files(tmp_path / "store" / "spark")
    for gone in ("metadata", "sources/0/9.compact", "sources/1/0", "offsets/0"):
        (place / gone).unlink()
    write(place, sources_0_10="", commits_1="1")
    copy.keep()
    # What was put together is in one that is newer: that, and nothing else of the sources, Spark forgets.
    write(place, sources_0_19="")
    (place / "sources" / "0" / "19").rename(place / "sources" / "0" / "19.compact")
    (place / "sources" / "0" / "8").unlink()
    copy.keep()
    left = files(tmp_path / "store" / "spark")
    del kept["sources/0/8"]
    assert left == {**kept, "sources/0/10": "", "sources/0/19.compact": "", "commits/1": "1"}


def test_a_run_that_was_taken_over_changes_nothing_and_the_newest_has_its_own(tmp_path: Path):
    late, late_place = begun(tmp_path, newest=False)
    newest, place = begun(tmp_path, "second")
    write(place, offsets_0="of the newest")
    newest.keep()
    write(late_place, offsets_0="of the late one")
    with pytest.raises(Superseded):
        late.keep()
    assert files(tmp_path / "store" / "spark") == {"offsets/0": "of the newest"}
    (tmp_path / "store" / "spark" / "offsets" / "1").write_text("of one that was late, and nobody has seen")
    write(place, offsets_1="of the newest")
    newest.keep()
    assert files(tmp_path / "store" / "spark")["offsets/1"] == "of the newest"


def test_a_run_that_ends_brings_what_is_done_and_not_what_it_has_only_begun(tmp_path: Path):
    copy, place = begun(tmp_path)
    write(place, offsets_0="0")
    copy.keep()
    write(place, commits_0="done", offsets_1="1")
    copy.keep_commits()
    assert files(tmp_path / "store" / "spark") == {"offsets/0": "0", "commits/0": "done"}


def test_state_of_sparks_own_is_refused_as_it_would_not_be_brought(tmp_path: Path):
    copy, place = begun(tmp_path)
    write(place, offsets_0="0", state_0_0_1="its own")
    with pytest.raises(InvalidConfiguration, match=r"dropDuplicates.*keep the checkpoint on a disk"):
        copy.keep()
    assert not files(tmp_path / "store")
