"""Backend ``sky`` of joblib and scikit-learn: sends batches of calls to the pool."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from joblib import parallel_config, register_parallel_backend
from joblib._parallel_backends import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
)

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls import active_pools
from jupyter_sky.execution.functions.images.image import Image

if TYPE_CHECKING:
    from concurrent.futures import Future

    from jupyter_sky.execution.functions.calls.tasks import RemoteFuture
    from jupyter_sky.execution.functions.pools.pool import Pool

NAME = "sky"


def _run(batch: Callable[[], Any]) -> Any:
    """Run a batch of calls; on a node."""
    return batch()


class SkyBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Backend of joblib that sends batches to the current or to a named pool.

    Parameters
    ----------
    pool
        Pool of ``parallel_backend("sky", pool=compute)``.
    """

    supports_retrieve_callback = True
    supports_timeout = True  # type: ignore[assignment]  # a property in some versions of joblib
    default_n_jobs = -1

    def __init__(self, *args: Any, pool: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._given = pool
        self._under_way: set[RemoteFuture[Any]] = set()

    @property
    def pool(self) -> Pool:
        """Pool that calls are sent to.

        Raises
        ------
        SkyUsageError
            None is up.
        """
        return self._given if self._given is not None else active_pools.current()

    def configure(self, n_jobs: int = 1, *args: Any, **kwargs: Any) -> Any:
        """Return how many calls can run at once.

        Raises
        ------
        FallbackToBackend
            This is a node, which sends no calls: they run here, one after the other.
        """
        if self._given is None and active_pools.active() is None and active_pools.is_on_node():
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        return super().configure(n_jobs, *args, **kwargs)

    def effective_n_jobs(self, n_jobs: int | None) -> int:  # type: ignore[override]
        """Return how many calls can run at once: all slots of the pool, or as many as asked for."""
        if n_jobs == 0:
            raise SkyUsageError(
                _("n_jobs == 0 in Parallel has no meaning"), hint=_("n_jobs=-1 is all of the pool")
            )
        slots = len(self.pool.ranks) * self.pool.worker.concurrency
        if n_jobs is None or n_jobs < 0:
            return max(slots + 1 + (-1 if n_jobs is None else n_jobs), 1)
        return n_jobs

    def submit(self, func: Any, callback: Callable[[Any], Any] | None = None) -> Future[Any]:
        """Send a batch of calls to the pool."""
        from jupyter_sky.execution.functions.calls.lazy_calls import function

        future: Any = function(_run)(func) > self.pool
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit  # what joblib before 1.5 calls

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the result of a batch, or raise its error."""
        return out.result()

    def retrieve_result(self, out: Future[Any], timeout: float | None = None) -> Any:
        """Wait for a batch."""
        return out.result(timeout)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Stop running calls: one has failed, or the user has interrupted."""
        why = "cancel" if isinstance(sys.exc_info()[1], KeyboardInterrupt) else "group"
        for future in list(self._under_way):
            future.stop(why)

    def terminate(self) -> None:
        """Drop the reference to the pool, which goes on."""
        self.reset_batch_stats()


register_parallel_backend(NAME, SkyBackend)


@dataclass(frozen=True, slots=True)
class Joblib:
    """Plug-in, see `plugins.joblib`."""

    requirement: str | None = None
    """Package that nodes install."""

    def image(self, image: Image | None) -> Image | None:
        """Add the package to the image if there is one."""
        if self.requirement is None:
            return image
        image = image or Image()
        return replace(image, pip=[*image.pip, self.requirement])

    @contextlib.contextmanager
    def client(self, pool: Pool) -> Iterator[None]:
        """Set the default backend of `joblib.Parallel` while the pool is up."""
        with parallel_config(NAME, pool=pool, n_jobs=-1):
            yield
