"""An emulator of Google Cloud, which the process of the tests is pointed at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches.launcher import launch_machines
from tests.clouds.gcp_requests import machine_config, order, use
from tests.emulators.gce import Compute


@pytest.fixture(scope="module")
def server() -> Iterator[Compute]:
    made = Compute(boot=0.02)
    yield made
    made.close()


@pytest.fixture
def compute(server: Compute, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compute]:
    """A Compute Engine that is as new, which this process is pointed at."""
    use(monkeypatch, server.env())
    yield server
    server.reset()


@pytest.fixture(scope="module")
def shared() -> Iterator[Compute]:
    """A Compute Engine for tests that leave nothing behind; it has a network already."""
    made = Compute(boot=0.02)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, made.env())
        launch_machines(Gcp(), order("first-00000000"), machine_config("first-00000000"))
    yield made
    made.close()


@pytest.fixture
def provider() -> Gcp:
    return Gcp()
