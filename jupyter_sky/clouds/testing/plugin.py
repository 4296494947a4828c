"""Plugin of pytest with the options of the conformance suite."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--provider`` and ``--world``, unless another plugin has them."""
    group = parser.getgroup("jupyter_sky", "conformance of a provider to jupyter_sky.provider")
    with suppress(ValueError):
        group.addoption("--provider", metavar="MODULE:CLASS", help=_("the provider to be checked"))
        group.addoption("--world", metavar="MODULE:CLASS", help=_("its account, for the checks"))
