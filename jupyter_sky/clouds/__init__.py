"""Clouds: each is one small file behind one protocol; this is the register of them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from ..errors import SkyUsageError, suggest
from ..labels import OWN
from .base import Cloud, Credentials, Host, Launch, Machine, Own
from .support import RENTED, launchable, never_launchable, why_not_launchable

if TYPE_CHECKING:
    from .rented import RentedCloud

__all__ = [
    "OWN",
    "RENTED",
    "Cloud",
    "Credentials",
    "Host",
    "Launch",
    "Machine",
    "get",
    "is_ready",
    "launchable",
    "never_launchable",
    "own_cloud",
    "rented_cloud",
    "why_not_launchable",
]


def is_ready(name: str) -> bool:
    """Whether a cloud can launch and there is something to launch with; asks nobody."""
    return name in OWN or (name in RENTED and rented_cloud(name).usable())


def own_cloud(name: str) -> Own:
    """Return a cloud of `OWN`."""
    return cast(Own, get(name))


def rented_cloud(name: str) -> RentedCloud:
    """Return a cloud of `RENTED`."""
    return cast("RentedCloud", get(name))


@cache
def get(name: str) -> Cloud:
    """Return the cloud called `name`; its SDK is imported now, not before.

    Raises
    ------
    SkyUsageError
        No cloud of that name can launch.
    """
    if name not in launchable():
        hint = suggest(name, launchable())
        raise SkyUsageError(f"cloud {name!r} cannot launch machines yet", hint=hint)
    return import_module(f".{name}", __name__).cloud
