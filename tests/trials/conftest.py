"""Emulated AWS for trials and benchmarks that rent machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulators.loopback import Loopback, loopback


@pytest.fixture(scope="module")
def cloud() -> Iterator[Loopback]:
    with loopback("aws", minute=1.0) as opened:
        yield opened


@pytest.fixture
def emptied(cloud: Loopback) -> Iterator[Loopback]:
    """Yield the cloud; afterwards it has no machines, and no orders for those to come."""
    yield cloud
    cloud.api.scripts.clear()
    for machine in cloud.machines():
        cloud.api.power_off(machine["id"])
