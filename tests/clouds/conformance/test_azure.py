"""Machines of Azure under the conformance suite."""

from __future__ import annotations

from pathlib import Path

from tests.clouds.conformance.suite import LISTS, MARKS, assert_conforms

pytestmark = MARKS


def test_azure_conforms(tmp_path: Path) -> None:
    assert_conforms(tmp_path, "azure.provider:Azure", "emulated_worlds:Azure", LISTS)
