"""Tests of CPython's `concurrent.futures` that any executor must pass, run on a pool."""

import importlib
from concurrent.futures import Executor, Future
from typing import Any

import peer_tests

import jupyter_sky as sky

_modules = {
    name: importlib.import_module(f"test.test_concurrent_futures{name}")
    for name in peer_tests.FUTURES_MODULES
}


def _class(name: str) -> Any:
    return next(getattr(each, name) for each in _modules.values() if hasattr(each, name))


class PoolAsExecutor(Executor):
    """Pool with the interface of an executor; its end is not the pool's."""

    def __init__(self, max_workers: int | None = None, **_: object) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._closed = False

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return sky.function(function)(*args, **kwargs) > sky

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True


class PoolMixin(_class("ExecutorMixin")):
    executor_type = PoolAsExecutor


class PoolExecutorTest(PoolMixin, _class("ExecutorTest"), _class("BaseTestCase")):
    """Submission, `map`, references."""


class PoolWaitTest(PoolMixin, _class("WaitTests"), _class("BaseTestCase")):
    """`concurrent.futures.wait`."""


class PoolAsCompletedTest(PoolMixin, _class("AsCompletedTests"), _class("BaseTestCase")):
    """`concurrent.futures.as_completed`."""
