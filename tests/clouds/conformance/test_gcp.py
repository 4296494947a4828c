"""Machines of Compute Engine under the conformance suite."""

from __future__ import annotations

from pathlib import Path

from tests.clouds.conformance.suite import LISTS, MARKS, assert_conforms

pytestmark = MARKS


def test_gcp_conforms(tmp_path: Path) -> None:
    assert_conforms(tmp_path, "gcp.provider:Gcp", "emulated_worlds:Gcp", LISTS)
