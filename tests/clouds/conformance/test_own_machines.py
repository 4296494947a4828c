"""Machines of one's own under the conformance suite."""

from __future__ import annotations

from pathlib import Path

from tests.clouds.conformance.suite import LISTS, MARKS, assert_conforms
from tests.provider.conformance import CHECKS

pytestmark = MARKS
CLOUDS_ALONE = LISTS | {"02", "07", "08", "10", "13", "14", "16", "17"}
"""Checks of what only clouds do that are asked by requests and end machines."""


def test_ssh_hosts_conform(tmp_path: Path) -> None:
    world = "on_premises_worlds:SshWorld"
    assert_conforms(tmp_path, "tests.clouds.on_premises:Ssh", world, CLOUDS_ALONE)


def test_this_machine_conforms(tmp_path: Path) -> None:
    """Its clusters begin with their controller: what launches them otherwise starts nothing."""
    left_out = CHECKS - {"01", "03", "06", "12", "20"}
    world = "on_premises_worlds:LocalWorld"
    assert_conforms(tmp_path, "tests.clouds.on_premises:Local", world, left_out=left_out)
