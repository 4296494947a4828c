"""Clouds as values: ``sky.AWS(region="eu-west-1")`` for a pool's ``provider``.

They hold the place and nothing else: a cloud's SDK is imported when machines are launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jupyter_sky.base.clouds import facts
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _


@dataclass(frozen=True, init=False)
class ProviderSpec:
    """Cloud, or a region of it.

    Parameters
    ----------
    region
        In the cloud's own words; a country or jurisdiction by two letters.

    Attributes
    ----------
    name : str
        As in ``%%sky --cloud``.
    region : str, optional
        As given.

    Raises
    ------
    SkyUsageError
        More is given: credentials are those of the cloud's own tools.

    Examples
    --------
    >>> AWS(region="eu-west-1")
    AWS(name='aws', region='eu-west-1')
    >>> isinstance(AWS(), AWS), isinstance(AWS(), GCP)
    (True, False)
    """

    name: str
    region: str | None

    _facts: ClassVar[type[facts.CloudFacts]]

    def __init__(self, region: str | None = None, **others: object) -> None:
        if others:
            kind, first = type(self).__name__, next(iter(others))
            raise SkyUsageError(
                _(
                    "sky.{kind}({first}=...) does not exist: a cloud is its name and a region"
                ).format(kind=kind, first=first),
                hint=_(
                    "credentials come from the cloud's own tools: %sky setup {name} says how; "
                    "machines and images are named by sky.Compute"
                ).format(name=self._facts.name),
            )
        object.__setattr__(self, "name", self._facts.name)
        object.__setattr__(self, "region", region)


# written out, so that editors and type checkers know them; those of other packages by name:
# sky.Compute(provider="nimbus")


class AWS(ProviderSpec):
    """Amazon Web Services, or a region of it."""

    _facts = facts.AwsFacts


class Azure(ProviderSpec):
    """Microsoft Azure, or a region of it."""

    _facts = facts.AzureFacts


class GCP(ProviderSpec):
    """Google Cloud, or a region of it."""

    _facts = facts.GcpFacts


class Hyperstack(ProviderSpec):
    """Hyperstack, or a region of it."""

    _facts = facts.HyperstackFacts


class Lambda(ProviderSpec):
    """Lambda, or a region of it."""

    _facts = facts.LambdaFacts


class Local(ProviderSpec):
    """Machine of this notebook."""

    _facts = facts.LocalFacts


class Nebius(ProviderSpec):
    """Nebius, or a region of it."""

    _facts = facts.NebiusFacts


class RunPod(ProviderSpec):
    """RunPod, or a region of it."""

    _facts = facts.RunPodFacts


class SSH(ProviderSpec):
    """Machines of one's own that are reached by SSH."""

    _facts = facts.SshFacts


class Slurm(ProviderSpec):
    """Nodes of a Slurm cluster, or of a partition of it."""

    _facts = facts.SlurmFacts


class VastAI(ProviderSpec):
    """Vast.ai, or a region of it."""

    _facts = facts.VastFacts


class Verda(ProviderSpec):
    """Verda, or a region of it."""

    _facts = facts.VerdaFacts


@dataclass(frozen=True, init=False)
class ImageProviderSpec(ProviderSpec):
    """Cloud of containers, or a region of it, with the image that they run.

    Parameters
    ----------
    region
        In the cloud's own words.
    image
        Name of an image, such as ``python:3.12``; by default that of the settings.

    Examples
    --------
    >>> Container(image="python:3.12").image
    'python:3.12'
    """

    image: str | None

    def __init__(
        self, region: str | None = None, image: str | None = None, **others: object
    ) -> None:
        super().__init__(region, **others)
        object.__setattr__(self, "image", image)


class Container(ImageProviderSpec):
    """Containers on the machine of this notebook, by podman or Docker."""

    _facts = facts.ContainerFacts


class Kubernetes(ImageProviderSpec):
    """Pods of Kubernetes; a region is a context of the kubeconfig."""

    _facts = facts.KubernetesFacts
