"""Fleets of both kinds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clouds.launched_machine import Keys, needs_isolation
from tests.emulators.fleet import Fleet


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(params=[pytest.param(True, marks=needs_isolation, id="isolated"), "beside"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with Fleet(isolated=request.param is True, minute=0.2) as fleet:
        yield fleet


@pytest.fixture
def isolated() -> Iterator[Fleet]:
    with Fleet(isolated=True) as fleet:
        yield fleet
