"""Who asks for encrypted lines is told when the token goes over one that is not."""

from __future__ import annotations

import pytest

from ferryman._spark.session.advice import ENCRYPTION, warn_of_plain_rpc

CLUSTER = "spark://host:7077"


@pytest.mark.parametrize("setting", [None, *ENCRYPTION])
def test_it_is_said_once_neither_of_sparks_settings_is_on(caplog, setting):
    settings = {} if setting is None else {setting: "true"}

    warn_of_plain_rpc(CLUSTER, settings.get)

    assert bool(caplog.records) == (setting is None)
    if setting is None:
        assert all(name in caplog.text for name in ENCRYPTION)


def test_what_does_not_leave_the_machine_needs_no_encryption(caplog):
    warn_of_plain_rpc("local[2]", {}.get)
    assert not caplog.records
