"""The conformance suite on a cloud of this package with its emulator.

Tests that use it have one file for each world that boots machines: files run side by side.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tests.emulators.hosts import USABLE
from tests.provider.conformance import CHECKS, run_suite

MARKS = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # each is a run of pytest
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
LISTS = {"11", "18"}
"""Checks that need what the emulators of clouds lack: lists that are late, or long."""
NEED_MACHINES = {"04", "15", "16", "19", "20"}
"""Checks that reach machines: they take most of the suite's time."""


def assert_conforms(
    folder: Path,
    provider: str,
    world: str,
    skipped: Collection[str] = (),
    left_out: Collection[str] = (),
) -> None:
    """Run the suite, of which all checks have to pass but those that the world skips.

    Parameters
    ----------
    folder
        Where it is run.
    provider
        Provider, as ``module:Class``; a module of ``jupyter_sky.clouds`` may leave that out.
    world
        Its account, as ``module:Class`` of ``tests.clouds``.
    skipped
        Numbers of the checks that the world says not to support.
    left_out
        Numbers of the checks that are not run.
    """
    provider = provider if provider.startswith("tests.") else f"jupyter_sky.clouds.{provider}"
    options = ["--provider", provider, "--world", f"tests.clouds.{world}"]
    if left_out:
        options += ["-k", " and ".join(f"not test_{number}" for number in sorted(left_out))]
    results = run_suite(folder, *options)
    assert results.failed == set(), results.text
    assert results.passed == CHECKS - {*skipped, *left_out}, results.text
    assert results.skipped >= len(skipped), results.text
