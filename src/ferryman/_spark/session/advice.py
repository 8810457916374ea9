"""Look at a user's own session and say, once, which settings it would be better off with.

Calls `advised_settings` for what matters and where. Changes nothing in the session.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache

from pyspark.sql import SparkSession

from ferryman._model.advised_settings import ADVISED, STORE, Setting
from ferryman._model.errors import InvalidConfiguration
from ferryman._model.settings_that_apply import applies, is_local
from ferryman._spark.compat.session import default_filesystem

# Either has Spark encrypt the messages between driver and executors.
ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
WATERMARK_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"

_log = logging.getLogger("ferryman")

# Applications that have been told. Sessions of one application share most of these settings.
_told: set[str] = set()


@dataclass(frozen=True)
class Advice:
    """A setting that a session would be better off with.

    Parameters
    ----------
    setting
        Its name.
    have
        What the session has.
    want
        What it should have.
    why
        What it costs as it is.
    line
        What to add where the session is built.
    """

    setting: str
    have: str
    want: str
    why: str
    line: str


def check(spark: SparkSession) -> list[Advice]:
    """Find the settings that matter and that a session does not have.

    Parameters
    ----------
    spark
        Any session; one that `ferryman.session` made has nothing to be told.
    """
    context = spark.sparkContext
    filesystem = default_filesystem(spark)
    same_python = ferryman_importable(context.pythonExec)
    store = spark.conf.get(STORE, "") or ""
    missing = []
    for setting in ADVISED:
        have = _value(spark, setting)
        if not setting.accepts(have) and applies(
            setting, master=context.master or "", filesystem=filesystem, same_python=same_python, store=store
        ):
            line = f'.config("{setting.key}", "{setting.want}")'
            missing.append(Advice(setting.key, have, setting.want, setting.why, line))
    return missing


def advise(spark: SparkSession) -> list[Advice]:
    """Say which settings a session should have, the first time it is asked about.

    Parameters
    ----------
    spark
        The session a job is about to run on.

    Returns
    -------
    list of Advice
        What was said; empty when there was nothing to say, or it had been said before.
    """
    application = spark.sparkContext.applicationId
    if application in _told:
        return []
    _told.add(application)
    missing = check(spark)
    if missing:
        _log.warning("%s", block(missing))
    return missing


def warn_of_plain_rpc(master: str, setting: Callable[[str, str], str | None]) -> None:
    """Say that Spark's own messages, with which the token of state hosts travels, are not encrypted, if they are not.

    Parameters
    ----------
    master
        The session's master. On one machine they do not leave it.
    setting
        Gives the value of one of Spark's settings, or what is given for one that is not set.
    """
    encrypted = any(setting(name, "false") == "true" for name in ENCRYPTION)
    if not (is_local(master) or encrypted):
        _log.warning(
            "tls= encrypts the lines between state hosts, but the token that lets callers in travels with Spark's own "
            "messages, and those are not encrypted: who reads them on the network learns the token. A certificate is "
            "wanted all the same. Set %s=true (with spark.authenticate=true) or %s=true for the session.",
            *ENCRYPTION,
        )


def check_watermarks(declared: Collection[str], setting: Callable[[str, str], str | None]) -> None:
    """Refuse a setting by which rows would be late that are not here, and say of another that it is passed over.

    Parameters
    ----------
    declared
        The watermarks of a job.
    setting
        Gives the value of one of Spark's settings, or what is given for one that is not set.
    """
    if len(declared) > 1 and (setting(WATERMARK_POLICY, "min") or "").lower() == "max":
        raise InvalidConfiguration(
            f"{WATERMARK_POLICY}=max, and this job has several watermarks ({', '.join(declared)}): Spark would go by "
            "the greatest of them and leave out rows of slower inputs as late, and Ferryman goes by the least, and "
            f'loses none. Write spark.conf.set("{WATERMARK_POLICY}", "min") before the start; with_watermark(..., '
            "idle=...) does not wait for an input that is silent."
        )
    if (setting(EMPTY_BATCHES, "true") or "").lower() == "false":
        _log.warning(
            "%s=false is for Spark's own operators, and is passed over: an epoch comes without data when a timer, a "
            "window or a time to live is due, and after `idle` without data. Ferry(..., idle=None) leaves out the "
            "latter.",
            EMPTY_BATCHES,
        )


def block(missing: list[Advice]) -> str:
    """Write advice for a person to read, ending in the lines to copy."""
    settings = "1 setting" if len(missing) == 1 else f"{len(missing)} settings"
    reasons = "".join(f"\n  {advice.setting} = {advice.have}\n      {advice.why}" for advice in missing)
    lines = "".join(f"\n    {advice.line}" for advice in missing)
    return (
        f"Ferryman runs correctly on this Spark session, and would run better with {settings} changed:"
        f"{reasons}\n\n  Add where the session is built, or use ferryman.session():\n{lines}\n"
    )


@cache
def ferryman_importable(python: str) -> bool:
    """Tell whether another start of a Python finds Ferryman, as a worker would have to.

    Parameters
    ----------
    python
        The interpreter of the workers.
    """
    if python != sys.executable:
        return False
    # A fresh interpreter has to be asked: this one may know Ferryman from a path that only it was given.
    ask = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ferryman') is None)"
    answer = subprocess.run([python, "-c", ask], env=dict(os.environ), capture_output=True)
    return answer.returncode == 0


def _value(spark: SparkSession, setting: Setting) -> str:
    """Read a setting as the session has it."""
    if setting.key.startswith("spark.sql."):
        return spark.conf.get(setting.key, setting.default) or setting.default
    return spark.sparkContext.getConf().get(setting.key) or setting.default
