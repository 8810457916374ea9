"""The settings that a session has where nobody has said otherwise: by `ferryman.session` and `ferryman.configure`.

Calls `advised_settings` for what they are, and `settings_that_apply` for where each is right.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ferryman._model.advised_settings import ADVISED, COMFORT, FILE_MANAGERS, LOOPBACK, STORE
from ferryman._model.settings_that_apply import applies, is_local
from ferryman._spark.session.advice import ferryman_importable

# Where a session runs that nobody has said of: on all cores, and a task is tried four times.
MASTER = "local[*,4]"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def defaults(setting: Callable[[str], str | None], filesystem: str, has_class: Callable[[str], bool]) -> dict[str, str]:
    """Choose the values of all settings that nobody has set.

    Parameters
    ----------
    setting
        Gives what somebody has set; None where nobody has.
    filesystem
        The default filesystem, as a URI; empty where it is not known.
    has_class
        Tells whether this release of Spark has a class.
    """
    master = setting("spark.master") or MASTER
    same_python = ferryman_importable(os.environ.get("PYSPARK_PYTHON", sys.executable))
    store = setting(STORE) or ""
    ours = {
        advised.key: advised.want
        for advised in ADVISED
        if applies(advised, master=master, filesystem=filesystem, same_python=same_python, store=store)
    }
    if _MANAGER in ours:
        del ours[_MANAGER]
        for name in FILE_MANAGERS:
            if has_class(name):
                ours[_MANAGER] = name
    chosen = {**ours, **COMFORT, **(LOOPBACK if is_local(master) else {})}
    return {key: value for key, value in chosen.items() if setting(key) is None}
