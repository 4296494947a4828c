"""Clouds as values: ``sky.AWS(region="eu-west-1")`` for a pool's ``provider``.

They hold where, and nothing else: the cloud's SDK is imported when machines are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """Cloud, or a region of it.

    Attributes
    ----------
    name : str
        As in ``%%sky --cloud``.
    region : str, optional
        In the cloud's own words; a country or jurisdiction by two letters.

    Examples
    --------
    >>> AWS(region="eu-west-1")
    ProviderSpec(name='aws', region='eu-west-1')
    """

    name: str
    region: str | None = None


_DOCSTRING = """Return the cloud {name}, or a region of it.

Parameters
----------
region
    In the cloud's own words; a country or jurisdiction by two letters.

Returns
-------
ProviderSpec
    Value for ``provider=`` of `Compute`.

Examples
--------
>>> sky.Compute(provider=sky.AWS("eu-west-1"), cpus=4)  # doctest: +SKIP
"""


def _make_provider(name: str) -> Callable[..., ProviderSpec]:
    def provider(region: str | None = None) -> ProviderSpec:
        return ProviderSpec(name, region)

    provider.__doc__ = _DOCSTRING.format(name=name)
    return provider


AWS = _make_provider("aws")
Azure = _make_provider("azure")
GCP = _make_provider("gcp")
Hyperstack = _make_provider("hyperstack")
Lambda = _make_provider("lambda")
Local = _make_provider("local")
Nebius = _make_provider("nebius")
RunPod = _make_provider("runpod")
SSH = _make_provider("ssh")
VastAI = _make_provider("vast")
Verda = _make_provider("verda")

Container = Local
"""Nodes on this machine are processes that are held to their share of it, without an image."""
