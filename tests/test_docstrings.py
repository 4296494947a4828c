"""Examples in docstrings of the lower rooms, run as tests."""

from __future__ import annotations

import doctest
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

import jupyter_sky

ROOMS = (
    "accelerators catalog config dag engines functions ledger optimizer preemption remote search "
    "storage store tracker"
).split()
MODULES = "concurrency errors geography offers quantities resources tables".split()


def documented_modules() -> Iterator[str]:
    """Yield the names of modules whose examples are run."""
    for name in (*ROOMS, *MODULES):
        path = f"jupyter_sky.{name}"
        yield path
        if name in ROOMS:
            room = import_module(path).__path__
            yield from (found.name for found in pkgutil.walk_packages(room, f"{path}."))


@pytest.mark.parametrize("name", list(documented_modules()))
def test_examples_of_a_module(name: str) -> None:
    result = doctest.testmod(import_module(name))
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(set(jupyter_sky.__all__) - {"__version__"}))
def test_public_names_have_docstrings(name: str) -> None:
    assert getattr(jupyter_sky, name).__doc__
