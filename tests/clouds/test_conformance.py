"""The conformance suite on the clouds of this package, each with its emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulators.hosts import USABLE
from tests.provider.conformance import CHECKS, SUITE_SECONDS, run_suite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
HIDDEN = {"11", "18"}
"""Checks that need what the emulators of clouds lack: lists that are late, or long."""


@pytest.mark.parametrize(
    ("provider", "world", "skipped"),
    [
        ("jupyter_sky.clouds.aws.driver:Aws", "tests.clouds.emulated_worlds:Aws", HIDDEN),
        ("jupyter_sky.clouds.gcp.driver:Gcp", "tests.clouds.emulated_worlds:Gcp", HIDDEN),
        ("jupyter_sky.clouds.azure.driver:Azure", "tests.clouds.emulated_worlds:Azure", HIDDEN),
    ],
)
def test_cloud_conforms(provider: str, world: str, skipped: set[str], tmp_path: Path) -> None:
    results = run_suite(tmp_path, "--provider", provider, "--world", world)
    assert results.failed == set(), results.text
    assert results.passed == CHECKS - skipped and results.skipped == len(skipped), results.text
    assert results.seconds < SUITE_SECONDS, results.text
