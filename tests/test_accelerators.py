from __future__ import annotations

import pytest

from jupyter_sky.accelerators import Accelerator, accelerator, canonical, names
from jupyter_sky.errors import SkyUsageError


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("nvidia-tesla-v100", "V100"),
        ("V100-16GB", "V100"),
        ("v100_32gb", "V100-32GB"),
        ("nvidia-a100", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("a100-80gb", "A100-80GB"),
        ("nvidia-h100-80gb", "H100"),
        ("Tesla T4", "T4"),
        ("aws-inferentia", "Inferentia"),
        ("trainium2", "Trainium2"),
        ("tpu-v5litepod-8", "tpu-v5e-8"),
        (" l40s ", "L40S"),
    ],
)
def test_names_as_people_and_clouds_write_them(written, name):
    assert canonical(written) == name


def test_canonical_names_stand_for_themselves():
    assert len(set(names())) == len(names()) > 20
    assert [canonical(name) for name in names()] == list(names())
    assert [canonical(name.lower()) for name in names()] == list(names())


def test_accelerator_carries_vendor_and_gib():
    assert accelerator("nvidia-tesla-k80") == Accelerator("K80", "NVIDIA", 12)
    assert all(accelerator(name).memory > 0 for name in names())


@pytest.mark.parametrize(
    ("written", "near"), [("V1000", "V100"), ("h10", "H100"), ("A100-90GB", "A100-80GB")]
)
def test_unknown_name_suggests_the_nearest(written, near):
    with pytest.raises(SkyUsageError, match=written) as caught:
        canonical(written)
    assert near in (caught.value.hint or "")
