"""The steps that a driver can be killed at are all listed: who tries every one of them misses none."""

from __future__ import annotations

import re
from pathlib import Path

import ferryman
from ferryman._os.faults import INGEST_STEPS, PLAN_STEPS, STEPS, WAIT_STEP


def test_every_step_that_is_reached_is_listed_and_none_else() -> None:
    sources = Path(ferryman.__file__).parent.rglob("*.py")
    calls = [call for source in sources for call in re.findall(r"\breach\((.*)\)", source.read_text(encoding="utf-8"))]
    reached = {step for call in calls for step in re.findall(r'"([a-z-]+)"', call)}

    assert reached == {*STEPS, *PLAN_STEPS, *INGEST_STEPS, WAIT_STEP}
