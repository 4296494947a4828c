"""Clouds as values: ``sky.AWS(region="eu-west-1")`` for a pool's ``provider``.

They hold the place and nothing else: a cloud's SDK is imported when machines are launched.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import ClassVar

from jupyter_sky.base.clouds.index import VAST
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _


@dataclass(frozen=True, init=False)
class CloudValue:
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

    _cloud: ClassVar[str]

    def __init_subclass__(cls, cloud: str = "") -> None:
        cls._cloud = cloud or cls.__name__.lower()
        parameters = inspect.cleandoc(cls.__mro__[1].__doc__ or "").partition("\n\n")[2]
        before, __, __ = parameters.partition("Examples\n---")
        example = f"Examples\n--------\n>>> {cls.__name__}().name\n{cls._cloud!r}\n"
        if "Examples" not in (cls.__doc__ or ""):
            cls.__doc__ = f"{cls.__doc__}\n\n{before}{example}"

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
                ).format(name=self._cloud),
            )
        object.__setattr__(self, "name", self._cloud)
        object.__setattr__(self, "region", region)


# written out, so that editors and type checkers know them; those of other packages by name:
# sky.Compute(provider="nimbus")


class AWS(CloudValue):
    """Amazon Web Services, or a region of it."""


class Azure(CloudValue):
    """Microsoft Azure, or a region of it."""


class GCP(CloudValue):
    """Google Cloud, or a region of it."""


class Hyperstack(CloudValue):
    """Hyperstack, or a region of it."""


class Lambda(CloudValue):
    """Lambda, or a region of it."""


class Local(CloudValue):
    """Machine of this notebook."""


class Nebius(CloudValue):
    """Nebius, or a region of it."""


class RunPod(CloudValue):
    """RunPod, or a region of it."""


class SSH(CloudValue):
    """Machines of one's own that are reached by SSH."""


class Slurm(CloudValue):
    """Nodes of a Slurm cluster, or of a partition of it."""


class VastAI(CloudValue, cloud=VAST):
    """Vast.ai, or a region of it."""


class Verda(CloudValue):
    """Verda, or a region of it."""


@dataclass(frozen=True, init=False)
class _CloudWithImage(CloudValue):
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


class Container(_CloudWithImage):
    """Containers on the machine of this notebook, by podman or Docker."""


class Kubernetes(_CloudWithImage):
    """Pods of Kubernetes; a region is a context of the kubeconfig."""
