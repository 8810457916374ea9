"""Watch over a driver: start it, start it again when it fails, give up with a reason; never are there two.

The driver runs in a session of its own (`supervised`), so whatever is left of it can be found, and is ended before the
next one starts. `restart_policy` says what comes after a failure. Calls the checkpoint only to count epochs.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from ferryman._engine.restart_policy import Ending, Failures, GiveUp, RestartPolicy
from ferryman._engine.supervised import LINES
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._model.errors import FerrymanError
from ferryman._os.processes import end, in_session, kill

# What the command ends with; docs/command-line.md.
DONE, GAVE_UP, LASTING, KILLED = 0, 3, 4, 5
_RUN = "import sys; from ferryman._engine.supervised import main; main(sys.argv[1], sys.argv[2:])"
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# How long what a driver has started has to end by itself, once it has.
_LEFT_S = 10.0
# So much of an error is said.
_MOST_SAID = 1500


class Driver:
    """One run of the script, in a process of its own.

    Attributes
    ----------
    error, message
        What ended the script, if it has told.
    """

    def __init__(self, script: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        lifeline, self._lifeline = os.pipe()
        heard, told = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _RUN, script, *arguments],
                env={**os.environ, **environment, LINES: f"{lifeline},{told}"},
                pass_fds=(lifeline, told),
                start_new_session=True,
            )
        finally:
            os.close(lifeline)
            os.close(told)
        self.error = self.message = ""
        self._jobs: dict[str, int] = {}
        self._ear = threading.Thread(target=self._listen, args=(heard,), name="ferryman-ear", daemon=True)
        self._ear.start()

    @property
    def id(self) -> int:
        """Give its process id."""
        return self._process.pid

    def _listen(self, heard: int) -> None:
        with open(heard, "rb") as lines:
            for line in lines:
                # The last line of one that was killed may be cut off.
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    said = json.loads(line)
                    if "error" in said:
                        self.error, self.message = str(said["error"]), str(said["message"])
                    else:
                        self._jobs.setdefault(str(said["checkpoint"]), int(said["epoch"]))

    def wait(self) -> int:
        """Wait until it has ended, and everything that it had started; give its exit code."""
        code = self._process.wait()
        # A JVM ends by itself when its driver has; that of one that failed has nothing to finish.
        patience_s = 0 if code else _LEFT_S
        # Again, as what is being ended may have started something more.
        while left := in_session(self.id):
            end(left, patience_s=patience_s)
        self._ear.join(timeout=_LEFT_S)
        os.close(self._lifeline)
        return code

    def ask(self) -> None:
        """Ask it to end after the epoch under way."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.id, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, and all it has started."""
        for process in in_session(self.id):
            kill(process.id)

    def epochs(self) -> int:
        """Count the epochs that it has committed, as far as the checkpoints tell."""
        found = 0
        for checkpoint, before in self._jobs.items():
            with contextlib.suppress(FerrymanError, OSError):
                latest = Checkpoint(directory(checkpoint)).latest()
                found += (latest.epoch if latest else 0) - before
        return found


class Supervisor:
    """Watch over the driver of one script.

    Parameters
    ----------
    script, arguments
        What to run.
    policy
        How patient to be.
    grace_s
        How long a driver that is asked to end has for it.
    say
        Takes what people are to know.
    environment
        Variables that drivers have beside those of this process.
    """

    def __init__(
        self,
        script: str,
        arguments: Sequence[str],
        *,
        policy: RestartPolicy,
        grace_s: float,
        say: Callable[[str], None],
        environment: Mapping[str, str],
    ) -> None:
        self._script = script
        self._arguments = arguments
        self._policy = policy
        self._grace_s = grace_s
        self._say = say
        self._environment = environment
        self._driver: Driver | None = None
        self._asked = threading.Event()
        self._killed = False

    def run(self) -> int:
        """Run the script until it has ended in order, or there is no use; give the exit code."""
        # What was started to be ignored, as by nohup, stays so.
        heard = [number for number in _ASKED if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._end) for number in heard}
        try:
            return self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self) -> int:
        failures = Failures()
        while True:
            self._driver = driver = Driver(self._script, self._arguments, self._environment)
            if self._asked.is_set():
                # Asked while it was being started, when there was nobody to tell.
                self._ask(driver)
            code = driver.wait()
            self._driver = None
            if self._asked.is_set():
                return self._ended_as_asked()
            if code == 0:
                return DONE
            ending = Ending(at_s=time.monotonic(), how=_how(code, driver), error=driver.error, epochs=driver.epochs())
            failures, now = failures.after(ending, self._policy, random.random())
            if isinstance(now, GiveUp):
                self._say(f"given up: {now.reason}")
                return LASTING if now.lasting else GAVE_UP
            epochs = f"after {ending.epochs} epochs" if ending.epochs else "before an epoch was committed"
            self._say(f"the driver has failed {epochs} ({ending.how}); starting again in {now.seconds:.1f} s")
            if self._asked.wait(now.seconds):
                return DONE

    def _ended_as_asked(self) -> int:
        if self._killed:
            self._say("the driver did not end in time and was killed; everything committed is intact")
            return KILLED
        self._say("the driver has ended, as it was asked to")
        return DONE

    def _end(self, signum: int, frame: FrameType | None) -> None:
        """Ask the driver to end; asked a second time, end it."""
        driver = self._driver
        again = self._asked.is_set()
        self._asked.set()
        if driver is None:
            return
        if again:
            self._kill(driver)
            return
        self._say(f"asked to end ({signal.Signals(signum).name}): the driver ends after the epoch under way")
        self._ask(driver)

    def _ask(self, driver: Driver) -> None:
        """Ask it to end, and end it if it does not in time."""
        driver.ask()
        timer = threading.Timer(self._grace_s, self._kill, (driver,))
        timer.daemon = True
        timer.start()

    def _kill(self, driver: Driver) -> None:
        if self._driver is driver:
            self._killed = True
            driver.kill()


def _how(code: int, driver: Driver) -> str:
    if driver.error:
        # What to do about it comes last.
        first = driver.message.partition("\n")[0][:_MOST_SAID]
        return f"{driver.error}: {first}"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
