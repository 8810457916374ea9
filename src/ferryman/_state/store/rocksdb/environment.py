"""The share that this process has in rocksdb stores, one per directory however many stores use it.

Knows which databases of a store this process has seen, and has a thread that answers other processes who ask
for one of them. Calls `wake_up`, `database`, `ledger` and `which_database`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ferryman._model.errors import InvalidConfiguration, StaleTask
from ferryman._state.compiled import Ints
from ferryman._state.store.locks import Locks
from ferryman._state.store.rocksdb.database import Database
from ferryman._state.store.rocksdb.ledger import Ledger
from ferryman._state.store.rocksdb.wake_up import WakeUpPipe
from ferryman._state.store.rocksdb.which_database import place

_open: dict[Path, Environment] = {}
_guard = threading.Lock()
# The first process, of those this one was forked from, that used RocksDB.
_user: int | None = None


class Environment:
    """Share the databases of a store with the other processes of the host.

    Attributes
    ----------
    ledger
        The store's ledger.
    """

    def __init__(self, files: Path, groups: int) -> None:
        self.ledger = Ledger(files / "ledger", groups)
        self._files = files
        self._me = secrets.randbits(62)
        self._databases: dict[int, Database] = {}
        self._making = threading.Lock()
        self._users = 0
        self._wake_ups = WakeUpPipe(files, self._me)
        self._listener = threading.Thread(target=self._answer, name="ferryman-rocksdb", daemon=True)
        self._listener.start()

    @classmethod
    def acquire(cls, files: Path, groups: int) -> Environment:
        """Open a store's directory, or share it if this process has it open."""
        global _user
        _user = _user or os.getpid()
        if _user != os.getpid():
            raise InvalidConfiguration(
                "The rocksdb backend cannot be used here: this process was forked from one that uses it, and RocksDB's "
                "threads stayed there. Start it anew instead (multiprocessing's 'spawn'), or use another backend."
            )
        with _guard:
            if files not in _open:
                _open[files] = cls(files, groups)
            _open[files]._users += 1
            return _open[files]

    def free(self) -> None:
        """Close everything when the last user is gone."""
        with _guard:
            self._users -= 1
            if self._users == 0 and _open.get(self._files) is self:
                del _open[self._files]
                self._close()

    def epochs(self) -> Ints:
        """Give the epoch of each whole main."""
        torn = np.flatnonzero(self.ledger.torn)
        if len(torn) and self._files.is_dir():
            for number in np.unique(self.ledger.database[torn]).tolist():
                self._database(number).mend()
        return self.ledger.epochs()

    def settle(self, groups: Ints) -> None:
        """Give each of some groups a database, if it has none yet."""
        if (self.ledger.database[groups] < 0).any():
            self._still_here()
            with Locks(self._files / "placing.lock") as locks, locks.held_all():
                self.ledger.database[groups] = place(self.ledger.database, groups)

    @contextlib.contextmanager
    def held(self, groups: Ints) -> Iterator[list[Database]]:
        """Hold the databases of some groups; groups that have none are left out."""
        self._still_here()
        some = np.flatnonzero(np.bincount(groups))
        numbers = np.unique(self.ledger.database[some])
        # In rising order, so that two processes never wait for each other.
        databases = [self._database(number) for number in numbers[numbers >= 0].tolist()]
        with contextlib.ExitStack() as stack:
            for database in databases:
                stack.enter_context(database.held())
            yield databases

    def yield_up(self) -> None:
        """Close all databases that no call needs right now."""
        for database in list(self._databases.values()):
            database.yield_up()

    def abandon(self) -> None:
        """Leave everything to the parent of a fork, in the child."""
        for database in self._databases.values():
            database.abandon()
        self._wake_ups.abandon()

    def _still_here(self) -> None:
        if not self._files.is_dir():
            raise StaleTask(
                f"The store's files at {self._files} are gone: it was replaced by one of another schema, or its run "
                "is over. Let this task end."
            )

    def _database(self, number: int) -> Database:
        with self._making:
            if number not in self._databases:
                self._databases[number] = Database(self._files, number, self.ledger, self._me)
            return self._databases[number]

    def _answer(self) -> None:
        while (number := self._wake_ups.wait()) is not None:
            if number in self._databases:
                self._databases[number].yield_up()

    def _close(self) -> None:
        self._wake_ups.end_wait()
        self._listener.join()
        for database in self._databases.values():
            database.close()
        self._wake_ups.close()


def _forget() -> None:
    """Use nothing of the parent's after a fork: its databases are its own, and RocksDB's threads are not here."""
    global _guard
    for environment in _open.values():
        environment.abandon()
    _open.clear()
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_forget)
