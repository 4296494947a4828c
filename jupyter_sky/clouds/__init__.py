"""Clouds: each is one small file behind one protocol; this is the register of them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from ..errors import SkyUsageError, suggest
from ..geography import ON_PREMISES
from .base import Cloud, ControllerHost, Credentials, LaunchRequest, Machine, OnPremisesCloud
from .launch_support import PROVIDERS, launch_obstacle, launchable, permanent_obstacle

if TYPE_CHECKING:
    from .provider import CloudProvider

__all__ = [
    "ON_PREMISES",
    "PROVIDERS",
    "Cloud",
    "ControllerHost",
    "Credentials",
    "LaunchRequest",
    "Machine",
    "cloud_provider",
    "get",
    "is_ready",
    "launch_obstacle",
    "launchable",
    "on_premises_cloud",
    "permanent_obstacle",
]


def is_ready(name: str) -> bool:
    """Whether a cloud can launch and there is something to launch with; asks nobody."""
    return name in ON_PREMISES or (name in PROVIDERS and cloud_provider(name).has_credentials())


def on_premises_cloud(name: str) -> OnPremisesCloud:
    """Return a cloud of `ON_PREMISES`."""
    return cast(OnPremisesCloud, get(name))


def cloud_provider(name: str) -> CloudProvider:
    """Return a cloud of `PROVIDERS`."""
    return cast("CloudProvider", get(name))


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
    return import_module(f".{name}.driver" if name in PROVIDERS else f".{name}", __name__).cloud
