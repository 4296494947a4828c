"""GPU clouds under the conformance suite, most of which needs only entries of their accounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clouds.conformance.suite import MARKS, NEED_MACHINES, assert_conforms

pytestmark = MARKS


@pytest.mark.parametrize(
    ("provider", "world", "real"),
    [
        ("hyperstack:Hyperstack", "HyperstackWorld", {"04", "16"}),
        ("nebius.provider:Nebius", "NebiusWorld", {"16"}),
        ("runpod:RunPod", "RunPodWorld", {"04", "16"}),
        ("vast:Vast", "VastWorld", {"16"}),
        ("verda:Verda", "VerdaWorld", {"16"}),
    ],
)
def test_gpu_cloud_conforms(provider: str, world: str, real: set[str], tmp_path: Path) -> None:
    """Boot machines for what is different on a cloud."""
    left_out = NEED_MACHINES - real
    assert_conforms(tmp_path, provider, f"neo_worlds:{world}", left_out=left_out)
