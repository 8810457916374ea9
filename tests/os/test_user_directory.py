"""Files of running jobs and homes: in a directory that nobody but their user can look into."""

from __future__ import annotations

import os

import pytest

from ferryman._os.user_directory import own_directory
from ferryman.errors import InvalidConfiguration


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"ferryman-{os.getuid()}"


def test_it_is_for_its_user_alone_also_if_it_was_not(temporary):
    assert own_directory().stat().st_mode & 0o777 == 0o700
    temporary.chmod(0o777)
    assert own_directory().stat().st_mode & 0o777 == 0o700


def test_what_is_no_directory_of_the_user_is_not_used(temporary, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    temporary.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidConfiguration, match="belongs to somebody else"):
        own_directory()


@pytest.fixture
def place(tmp_path):
    (tmp_path / "above" / "place").mkdir(parents=True)
    return tmp_path / "above" / "place"


as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to others")


@as_root
@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o700])
@pytest.mark.parametrize("whose", ["place", "above"])
def test_a_place_below_what_belongs_to_another_user_is_refused(place, whose, mode):
    theirs = place if whose == "place" else place.parent
    os.chown(theirs, 12345, 0)
    theirs.chmod(mode)

    with pytest.raises(InvalidConfiguration, match=rf"{theirs} belongs to another user .uid 12345.*{place}"):
        own_directory(place)


@as_root
def test_a_place_that_a_clusters_manager_gives_may_be_below_what_is_its_own(place):
    os.chown(place.parent, 12345, 0)
    assert own_directory(place, given=True).parent == place

    os.chown(place, 12345, 0)
    with pytest.raises(InvalidConfiguration, match="belongs to another user"):
        own_directory(place, given=True)


@as_root
@pytest.mark.parametrize("whose", ["place", "above"])
def test_a_place_where_another_group_may_rename_is_refused(place, whose):
    shared = place if whose == "place" else place.parent
    os.chown(shared, 0, 12345)
    shared.chmod(0o775)
    with pytest.raises(InvalidConfiguration, match=r"the group 12345 may rename.*chmod g-w"):
        own_directory(place)

    shared.chmod(0o1775)
    own_directory(place)


@as_root
def test_a_link_to_a_place_of_others_is_refused(place, tmp_path):
    os.chown(place, 12345, 0)
    (tmp_path / "link").symlink_to(place)

    with pytest.raises(InvalidConfiguration, match="belongs to another user"):
        own_directory(tmp_path / "link")


def test_a_link_that_is_changed_later_changes_nothing(place, tmp_path):
    (tmp_path / "link").symlink_to(place)

    assert own_directory(tmp_path / "link").parent == place.resolve()
