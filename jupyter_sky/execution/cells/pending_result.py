"""Result of a run that can be waited for."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

from jupyter_sky.base.concurrency import result_within
from jupyter_sky.base.translation import _


class PendingResult(ABC):
    """Result of a run: the value of its last expression, or its error."""

    def __init__(self) -> None:
        self._future: Future[Any] = Future()

    @property
    @abstractmethod
    def label(self) -> str:
        """Name of the run in messages."""

    @property
    @abstractmethod
    def status(self) -> str:
        """State of the run."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the value of the last expression, or raise its error.

        Parameters
        ----------
        timeout
            Seconds to wait.

        Raises
        ------
        SkyTimeout
            It has not ended by then; it goes on.
        """
        return result_within(
            self._future,
            timeout,
            lambda: _("{label} is still {status} after {timeout:g} s").format(
                label=self.label, status=self.status, timeout=timeout
            ),
        )

    def done(self) -> bool:
        """Return whether the run has ended, with or without success."""
        return self._future.done()

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._future).__await__()
