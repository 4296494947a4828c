"""Clouds as values: ``sky.AWS(region="eu-west-1")`` for a pool's ``provider``.

They hold where, and nothing else: the cloud's SDK is imported when machines are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provider:
    """A cloud, or a region of it.

    Attributes
    ----------
    name : str
        As in ``%%sky --cloud``.
    region : str, optional
        In the cloud's own words; a country or jurisdiction by two letters.

    Examples
    --------
    >>> AWS(region="eu-west-1")
    Provider(name='aws', region='eu-west-1')
    """

    name: str
    region: str | None = None


def _of(name: str) -> Callable[..., Provider]:
    def provider(region: str | None = None) -> Provider:
        return Provider(name, region)

    provider.__doc__ = f"Return the cloud {name}, or a region of it."
    return provider


AWS = _of("aws")
Azure = _of("azure")
GCP = _of("gcp")
Hyperstack = _of("hyperstack")
Lambda = _of("lambda")
Local = _of("local")
Nebius = _of("nebius")
RunPod = _of("runpod")
SSH = _of("ssh")
VastAI = _of("vast")
Verda = _of("verda")

Container = Local
"""Nodes on this machine are processes that are held to their share of it, without an image."""
