"""Containers of podman under the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clouds.conformance.suite import LISTS, MARKS, assert_conforms
from tests.emulators import podman

pytestmark = MARKS


def test_containers_conform(tmp_path: Path) -> None:
    """Real ones: nobody takes them back, and podman lists them at once and without pages."""
    if why := podman.problem():
        pytest.skip(why)
    world = "container_world:ContainerWorld"
    assert_conforms(tmp_path, "container:Container", world, {*LISTS, "17"})
