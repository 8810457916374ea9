"""Keep what of a checkpoint was found damaged and done without, so that it is said once and can be mended."""

from __future__ import annotations

import logging

from ferryman._model.errors import FerrymanError

log = logging.getLogger("ferryman")

# So many are kept: each stands for one file, and who has lost more needs no list.
_MOST = 100


class Damage:
    """What one reader of a checkpoint had to do without.

    Examples
    --------
    >>> damage = Damage()
    >>> damage.note("deltas/x", FerrymanError("deltas/x is missing."), "Not needed.")
    >>> damage.files
    ('deltas/x',)
    >>> damage.take(), damage.files
    (('deltas/x',), ())
    """

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._found: dict[str, None] = {}

    def note(self, file: str, error: FerrymanError, instead: str) -> None:
        """Keep the name of a file, and say once what is wrong with it and what is used instead."""
        if file not in self._said and len(self._said) < _MOST:
            self._said.add(file)
            self._found[file] = None
            log.warning("%s %s", error.message, instead)

    @property
    def files(self) -> tuple[str, ...]:
        """Name the files that were found since the last time they were taken."""
        return tuple(self._found)

    def take(self) -> tuple[str, ...]:
        """Name them, and forget them: whoever takes them sees to it. What is damaged again is said again."""
        found = self.files
        self._said.difference_update(found)
        self._found.clear()
        return found
