"""Clouds as values: ``sky.AWS(region="eu-west-1")`` for a pool's ``provider``.

They hold the place and nothing else: a cloud's SDK is imported when machines are launched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..provider import facts


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


def _make_provider(cloud: type[facts.CloudFacts]) -> Callable[..., ProviderSpec]:
    def provider(region: str | None = None) -> ProviderSpec:
        return ProviderSpec(cloud.name, region)

    provider.__doc__ = _DOCSTRING.format(name=cloud.name)
    return provider


# written out, so that editors and type checkers know them; those of other packages by name:
# sky.Compute(provider="nimbus")
AWS = _make_provider(facts.AwsFacts)
Azure = _make_provider(facts.AzureFacts)
GCP = _make_provider(facts.GcpFacts)
Hyperstack = _make_provider(facts.HyperstackFacts)
Lambda = _make_provider(facts.LambdaFacts)
Local = _make_provider(facts.LocalFacts)
Nebius = _make_provider(facts.NebiusFacts)
RunPod = _make_provider(facts.RunPodFacts)
SSH = _make_provider(facts.SshFacts)
VastAI = _make_provider(facts.VastFacts)
Verda = _make_provider(facts.VerdaFacts)

Container = Local
"""Nodes on this machine are processes that are held to their share of it, without an image."""
