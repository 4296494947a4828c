"""Fetcher shared by all sources: lists page by page, with cache, workers and progress bar."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from enum import Enum
from typing import Any, TypeVar

from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices.page_cache import Page, PageCache
from jupyter_sky.clouds.prices.progress import RefreshProgress

TRY_LATER_HINT = "try again later: what was fetched is kept for some hours"


class Recovery(Enum):
    """Recovery from a failed request."""

    RETRY = "the answer was damaged: ask for the same page again"
    RESTART = "the place to continue from is no longer known: begin the list anew"


_TRIES = 4  # of one page whose body is damaged; refusals and throttling are the SDKs' to retry
_PAUSE = 1.0  # seconds before the second try; each further pause is twice as long

Item = TypeVar("Item")
Result = TypeVar("Result")


class Fetcher:
    """Reads lists to their end, wherever an earlier run has left off.

    Parameters
    ----------
    cache
        Keeps pages between runs.
    explain
        Classifies an exception of the SDK.
    progress
        Shown to the user.
    workers
        Lists that are read at the same time.
    pause
        Seconds before a damaged page is asked for again.

    Attributes
    ----------
    skipped : Counter
        Invalid entries, by reason.
    resumed : int
        Pages that an earlier run had fetched.
    """

    def __init__(
        self,
        cache: PageCache,
        explain: Callable[[Exception], Recovery | SkyError],
        progress: RefreshProgress | None = None,
        *,
        workers: int = 4,
        pause: float = _PAUSE,
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self.resumed = 0
        self.progress = progress or RefreshProgress("", quiet=True)
        self._cache, self._explain = cache, explain
        self._workers, self._pause = workers, pause
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def pages(self, name: str, get: Callable[[str | None], Page]) -> list[Any]:
        """Return all records of a list.

        Parameters
        ----------
        name
            What the list is kept under; a slash separates levels.
        get
            Fetches the page that begins at a token, None for the first.

        Raises
        ------
        SkyError
            For a request that fails for good. Pages that came before it stay in the cache.
        """
        have = self._cache.pages(name)
        with self._lock:
            self.resumed += len(have)
        restarts = 0
        while not have or have[-1].next is not None:
            try:
                page = self._fetch_page(get, have[-1].next if have else None)
            except _Restart as restart:
                if restarts or not have:
                    raise SkyRefreshError(
                        _("{name}: the list ended half-way: {restart}").format(
                            name=name, restart=restart
                        ),
                        hint=TRY_LATER_HINT,
                    ) from restart
                restarts += 1
                self._cache.drop(name)
                have = []
                continue
            if page.next is not None and page.next in {earlier.next for earlier in have}:
                raise SkyRefreshError(
                    _("{name}: its pages go round in circles").format(name=name),
                    hint=TRY_LATER_HINT,
                )
            self._cache.put(name, len(have), page)
            have.append(page)
        for page in have:
            self.skip(page.skipped)
        return [record for page in have for record in page.records]

    def skip(self, counts: dict[str, int]) -> None:
        """Count entries that made no sense."""
        with self._lock:
            self.skipped.update(counts)

    def map(self, items: Iterable[Item], work: Callable[[Item], Result]) -> list[Result]:
        """Return results of `work` for each item, in order; several at a time, shown as progress.

        The first failure, or an interrupt, stops the others after the page they are at.
        """
        todo = list(items)
        self.progress.more(len(todo))
        with ThreadPoolExecutor(self._workers, "sky-refresh") as pool:
            jobs = [pool.submit(self._item, work, item) for item in todo]
            try:
                waiting = set(jobs)
                while waiting:
                    # a wait without an end cannot be interrupted on every platform
                    done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                    for job in done:
                        job.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return [job.result() for job in jobs]

    def _item(self, work: Callable[[Item], Result], item: Item) -> Result:
        result = work(item)
        self.progress.step(str(item))
        return result

    def _fetch_page(self, get: Callable[[str | None], Page], token: str | None) -> Page:
        for attempt in range(1, _TRIES + 1):
            if self._stop.is_set():
                raise SkyRefreshError(_("stopped"))
            try:
                return get(token)
            except SkyError:
                raise
            except Exception as error:
                meaning = self._explain(error)
                if meaning is Recovery.RESTART:
                    raise _Restart(str(error)) from error
                if isinstance(meaning, SkyError):
                    raise meaning from error
                if attempt == _TRIES:
                    raise SkyRefreshError(
                        _("the answer was damaged {tries} times: {error}").format(
                            tries=_TRIES, error=_format_error(error)
                        ),
                        hint=TRY_LATER_HINT,
                    ) from error
                self._stop.wait(self._pause * 2 ** (attempt - 1))
        raise AssertionError("every try returns or raises")


class _Restart(Exception):
    """The token is no longer good."""


def _format_error(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def today() -> str:
    """Return today's date in UTC, as YYYY-MM-DD."""
    return time.strftime("%Y-%m-%d", time.gmtime())
