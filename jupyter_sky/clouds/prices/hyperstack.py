"""Hyperstack: flavors and the price list of their parts, as its API writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jupyter_sky.base.json_types import JsonMapping
from jupyter_sky.clouds.prices.entries import canonical_accelerator

SPOT = "-spot"
"""End of the names of flavors, and of GPUs in the price list, that may be taken back."""
_GPU = re.compile(r"(?P<name>.+)-(?P<memory>\d+)G(?P<form>-(?:PCIe|SXM\d?))?(?:-NVLink)?")


def read_gpu(name: str) -> tuple[str | None, float | None]:
    """Return the canonical name of a GPU and the GiB in its name; None for what it lacks.

    Examples
    --------
    >>> read_gpu("H100-80G-PCIe-NVLink"), read_gpu("L40-spot"), read_gpu("")
    (('H100-PCIe', 80.0), ('L40', None), (None, None))
    """
    name = name.removesuffix(SPOT)
    found = _GPU.fullmatch(name)
    memory = float(found["memory"]) if found else None
    plain = found["name"] + (found["form"] or "") if found else name
    return canonical_accelerator(plain, memory) if name else None, memory


def price_of(flavor: JsonMapping, prices: Mapping[str, float], spot: bool) -> float | None:
    """Return USD/h of a flavor in a market; None where it is not sold there.

    Parameters
    ----------
    flavor
        As the API lists it.
    prices
        USD/h by name, of one GPU, vCPU or GB of memory.

    Examples
    --------
    >>> price_of({"gpu": "L40", "gpu_count": 2}, {"L40": 1.0, "L40-spot": 0.8}, spot=True)
    1.6
    """
    if gpu := (flavor["gpu"] or "").removesuffix(SPOT):
        price = prices.get(gpu + (SPOT if spot else ""))
        return round(price * flavor["gpu_count"], 4) if price else None
    vcpu, ram = (prices.get(f"{part} (cpu-only-flavors)") for part in ("vCPU", "RAM"))
    if spot or vcpu is None or ram is None:
        return None
    return round(vcpu * flavor["cpu"] + ram * flavor["ram"], 4)
