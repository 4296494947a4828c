"""Methods as functions of a pool: they keep the object that they belong to."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pytest

from jupyter_sky.execution.functions.calls.lazy_calls import Function, PendingFunction, function
from jupyter_sky.execution.functions.calls.output import silent
from jupyter_sky.execution.functions.pools.pool import Pool


@dataclass
class Model:
    """Class whose instances are equal by value, and so have no hash."""

    rate: float

    @function
    def fit(self, x: float) -> float:
        """Return a product."""
        return self.rate * x

    @function(timeout="1m", retry=2)
    def slow(self) -> float:
        return self.rate

    @silent
    @function
    def steps(self, count: int) -> Iterator[float]:
        for step in range(count):
            yield step * self.rate

    @function
    def total(self, items: Iterator[float]) -> float:
        return self.rate * sum(items)

    @function
    async def fetch(self, x: float) -> float:
        await asyncio.sleep(0.01)
        return self.rate * x

    @function
    @staticmethod
    def double(x: float) -> float:
        return 2 * x

    @staticmethod
    @function
    def triple(x: float) -> float:
        return 3 * x

    @classmethod
    @function
    def named(cls, rate: float) -> Model:
        return cls(rate)

    @function
    @classmethod
    def made(cls, rate: float) -> Model:
        return cls(rate)


def test_bound_method_describes_a_call() -> None:
    model = Model(3)
    call: Any = model.fit(4)
    assert isinstance(call, PendingFunction) and repr(call) == "Model.fit(4)"
    assert call.local() == 12 and model.fit.local(4) == 12
    assert model.fit.__doc__ == "Return a product."
    unbound: Any = Model.fit(model, 4)
    assert unbound.local() == 12


def test_bound_method_keeps_its_options() -> None:
    model = Model(3)
    assert (model.slow.timeout, model.slow.retry.times) == (60.0, 2)
    assert model.steps.shown == {"stdout": (), "stderr": ()}


def test_static_and_class_methods() -> None:
    for owner in (Model, Model(1)):
        functions: list[tuple[Any, Any]] = [
            (owner.double, 4),
            (owner.triple, 6),
            (owner.named, Model(2)),
            (owner.made, Model(2)),
        ]
        for each, value in functions:
            assert each(2).local() == value


def test_bound_method_can_be_pickled() -> None:
    fit = pickle.loads(cloudpickle.dumps(Model(3).fit))
    assert isinstance(fit, Function) and fit.local(4) == 12


@pytest.mark.slow
def test_methods_on_nodes(executors: Pool) -> None:
    model = Model(3)
    assert model.fit(4) >> executors == 12
    assert model.fit(4) @ executors == [12, 12]
    assert (model.fit(1) > executors).result() == 3
    assert list(model.steps(3) >> executors) == [0, 3, 6]
    assert model.total(iter([1, 2])) >> executors == 9
    assert executors.map(model.fit, [1, 2]) == [3, 6]
    assert Model.named(5) >> executors == Model(5)
    assert Model.made(5) >> executors == Model(5)
    assert Model.double(5) >> executors == 10


@pytest.mark.slow
def test_coroutine_methods_run_to_their_end(compute: Pool) -> None:
    call = Model(0.5).fetch(4)
    assert call >> compute == 2.0
    assert (call & Model(2).fetch(1)) >> compute == (2.0, 2)
    assert call @ compute == [2.0, 2.0]
