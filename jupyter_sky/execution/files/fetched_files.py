"""Files that cells have brought to this machine: the next run may replace its own copies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from jupyter_sky.base.remote.supervisor import write_private

MAX_KEPT = 2000


class FetchedFiles:
    """Record of the files that ``-o file:`` has brought, each with its size and time.

    Parameters
    ----------
    path
        File of the record, which outlives kernels.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def unchanged(self, paths: Iterable[Path]) -> list[Path]:
        """Return those that were brought and have not been changed here since."""
        known = self._read()
        return [path for path in paths if known.get(_key(path)) == _state(path)]

    def add(self, paths: Iterable[Path]) -> None:
        """Record files that have just been brought."""
        known = self._read() | {_key(path): _state(path) for path in paths}
        with contextlib.suppress(OSError):  # the next run asks before it replaces them
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_private(self._path, dict(list(known.items())[-MAX_KEPT:]))

    def _read(self) -> dict[str, list[int]]:
        try:
            known = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def _key(path: Path) -> str:
    return str(path.absolute())


def _state(path: Path) -> list[int]:
    try:
        facts = path.lstat()
    except OSError:
        return []
    return [facts.st_size, facts.st_mtime_ns]
