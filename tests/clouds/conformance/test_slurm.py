"""Jobs of a real Slurm under the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clouds.conformance.suite import MARKS, assert_conforms
from tests.emulators import slurm

pytestmark = MARKS


@pytest.mark.skipif(not slurm.USABLE, reason="needs root and the packages of Slurm")
def test_slurm_conforms(tmp_path: Path) -> None:
    """Lists of Slurm are never late, and it has no secrets."""
    assert_conforms(tmp_path, "slurm.provider:Slurm", "slurm_world:SlurmWorld", {"11", "17"})
