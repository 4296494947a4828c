"""Emulators of Azure, which the process of the tests is pointed at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_sky.clouds.azure.provider import Azure
from tests.clouds.azure_requests import an_azure, use
from tests.emulators.arm import Arm
from tests.emulators.fleet import Fleet


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arm]:
    yield from an_azure(monkeypatch)


@pytest.fixture
def azure(arm: Arm) -> Azure:
    return Azure(poll=0.02)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arm]:
    """An Azure with real machines."""
    with Fleet() as fleet:
        arm = Arm(fleet)
        use(arm.env(), monkeypatch)
        yield arm
        arm.close()
