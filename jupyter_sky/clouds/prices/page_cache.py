"""Cache of fetched pages on disk, so that an interrupted refresh can go on."""

from __future__ import annotations

import gzip
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jupyter_sky.base.store.atomic_file import write_atomically

_FORMAT = 2  # raised when what the sources keep changes its meaning
KEEP_HOURS = 6.0


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list.

    Attributes
    ----------
    records : list
        What was read from it: plain values, small, so that a page can be kept as JSON.
    next : str or None
        Where the next page begins; None after the last.
    skipped : dict of str to int
        Invalid entries, by reason.
    """

    records: list[Any]
    next: str | None = None
    skipped: dict[str, int] = field(default_factory=dict)


class PageCache:
    """Pages by the name of their list.

    Two processes may share a cache: each page is written in one step, and both would write
    the same.

    Parameters
    ----------
    directory
        Where the pages of one cloud are.
    keep_hours
        A list whose first page is older than this is fetched anew: prices move.
    now
        The clock, in seconds since the epoch.

    Examples
    --------
    >>> cache = PageCache(folder)  # doctest: +SKIP
    >>> cache.put("eastus/prices", 0, Page([{"usd": 1.0}], "token"))  # doctest: +SKIP
    >>> cache.pages("eastus/prices")[0].next  # doctest: +SKIP
    'token'
    """

    def __init__(
        self,
        directory: Path | str,
        keep_hours: float = KEEP_HOURS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.directory = Path(directory)
        self._keep, self._now = keep_hours * 3600, now

    def pages(self, name: str) -> list[Page]:
        """Return the pages of a list from the first on, up to the first that is missing."""
        folder, found = self._folder(name), list[Page]()
        while (path := folder / f"{len(found):05}.json.gz").is_file():
            try:
                kept = json.loads(gzip.decompress(path.read_bytes()))
                young = 0 <= self._now() - kept["at"] <= self._keep
                if kept["format"] != _FORMAT or not young:
                    break
                found.append(Page(kept["records"], kept["next"], kept["skipped"]))
            except (OSError, EOFError, ValueError, KeyError, TypeError):
                break  # not worth a word: the page is fetched again
        return found

    def put(self, name: str, number: int, page: Page) -> None:
        """Keep one page. A disk that is full must not end a refresh: the page is then not kept."""
        kept = {
            "format": _FORMAT,
            "at": self._now(),
            "next": page.next,
            "skipped": page.skipped,
            "records": page.records,
        }
        path = self._folder(name) / f"{number:05}.json.gz"
        data = gzip.compress(json.dumps(kept).encode(), compresslevel=1)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data, durable=False)

    def drop(self, name: str) -> None:
        """Forget the pages of one list."""
        shutil.rmtree(self._folder(name), ignore_errors=True)

    def clear(self) -> None:
        """Forget everything: it has become part of the catalog."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _folder(self, name: str) -> Path:
        return self.directory.joinpath(*(quote(part, safe=" ") for part in name.split("/")))
