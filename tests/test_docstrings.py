"""Examples in docstrings, run as tests."""

from __future__ import annotations

import doctest
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

import jupyter_sky


def documented_modules() -> Iterator[str]:
    """Yield the names of modules whose examples are run: all that do nothing when imported."""
    found = pkgutil.walk_packages(jupyter_sky.__path__, "jupyter_sky.")
    yield from (module.name for module in found if not module.name.endswith("__main__"))


@pytest.mark.parametrize("name", list(documented_modules()))
def test_examples_of_a_module(name: str) -> None:
    runner = doctest.DocTestRunner()
    for found in doctest.DocTestFinder().find(import_module(name)):
        if found.examples:  # a run without examples would still look for changes of every source
            runner.run(found)
    assert runner.summarize().failed == 0


@pytest.mark.parametrize("name", sorted(set(jupyter_sky.__all__) - {"__version__"}))
def test_public_names_have_docstrings(name: str) -> None:
    assert getattr(jupyter_sky, name).__doc__
