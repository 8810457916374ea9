"""Files of running jobs and homes: in a directory that nobody but their user can look into."""

from __future__ import annotations

import os

import pytest

from ferryman._serve.private import own_directory
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
