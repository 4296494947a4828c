"""Accelerators by their canonical names, with the names that people and clouds give them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jupyter_sky.errors import SkyUsageError, suggest


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One kind of accelerator.

    Attributes
    ----------
    name : str
        Canonical name, as in ``--gpus V100:1``.
    vendor : str
        Who makes it.
    memory : float
        Memory of one accelerator, in GiB. For a TPU slice, of the slice.
    """

    name: str
    vendor: str
    memory: float


# vendor -> canonical name -> (GiB, other names). Vendors' prefixes are stripped before look-up.
_TABLE: dict[str, dict[str, tuple[float, str]]] = {
    "NVIDIA": {
        "K80": (12, ""),
        "M60": (8, ""),
        "P4": (8, ""),
        "P100": (16, "p100-16gb p100-pcie-16gb"),
        "V100": (16, "v100-16gb v100-sxm2 v100-sxm2-16gb"),
        "V100-32GB": (32, "v100-sxm2-32gb v100-sxm3-32gb"),
        "T4": (16, "t4-16gb"),
        "T4g": (16, ""),
        "RTX6000": (24, "rtx-6000 quadro-rtx-6000"),
        "A10": (24, "a10-24gb"),
        "A10G": (24, "a10g-24gb"),
        "A100": (40, "a100-40gb a100-sxm4 a100-sxm4-40gb"),
        "A100-80GB": (80, "a100-sxm4-80gb a100-80g"),
        "L4": (24, "l4-24gb"),
        "L40S": (48, "l40s-48gb"),
        "H100": (80, "h100-80gb h100-sxm h100-sxm5 h100-mega-80gb"),
        "H200": (141, "h200-141gb h200-sxm"),
        "B200": (180, "b200-180gb"),
    },
    "AMD": {
        "MI250": (128, "mi250x"),
        "MI300X": (192, "mi300x-192gb"),
    },
    "AWS": {
        "Trainium": (32, "trainium1 trn1"),
        "Trainium2": (96, "trn2"),
        "Inferentia": (8, "inferentia1 inf1"),
        "Inferentia2": (32, "inf2"),
    },
    "Google": {
        "tpu-v2-8": (64, "v2-8"),
        "tpu-v3-8": (128, "v3-8"),
        "tpu-v4-8": (128, "v4-8"),
        "tpu-v5e-8": (128, "v5e-8 v5litepod-8 tpu-v5litepod-8 tpu-v5-lite-8"),
        "tpu-v5p-8": (380, "v5p-8"),
        "tpu-v6e-8": (256, "v6e-8"),
    },
}

_BY_NAME = {
    name: Accelerator(name, vendor, memory)
    for vendor, models in _TABLE.items()
    for name, (memory, _) in models.items()
}
_CANONICAL = {
    alias.lower(): name
    for models in _TABLE.values()
    for name, (_, aliases) in models.items()
    for alias in (name, *aliases.split())
}
_VENDOR = re.compile(r"^(?:(?:nvidia|tesla|geforce|amd|radeon|instinct|aws|google|cloud)-)+")


def names() -> tuple[str, ...]:
    """Canonical names of all known accelerators."""
    return tuple(_BY_NAME)


def canonical(name: str) -> str:
    """Canonical name of an accelerator, however it is written.

    Raises
    ------
    SkyUsageError
        When the name is not known; the hint gives the nearest ones.

    Examples
    --------
    >>> canonical("nvidia-tesla-v100")
    'V100'
    """
    key = _VENDOR.sub("", re.sub(r"[\s_]+", "-", name.strip().lower()))
    if key not in _CANONICAL:
        raise SkyUsageError(f"{name!r} is not a known accelerator", hint=suggest(key, names()))
    return _CANONICAL[key]


def accelerator(name: str) -> Accelerator:
    """Accelerator of any of its names.

    Examples
    --------
    >>> accelerator("a100-80gb").memory
    80
    """
    return _BY_NAME[canonical(name)]
