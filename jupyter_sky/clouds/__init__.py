"""Clouds: each is one small file behind one protocol; this is the register of them."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..errors import SkyUsageError, suggest
from .base import Cloud, Credentials, Host, Launch, Machine

__all__ = ["Cloud", "Credentials", "Host", "Launch", "Machine", "get", "is_ready", "launchable"]

MODULES = {name: f"jupyter_sky.clouds.{name}" for name in ("local", "ssh", "aws", "gcp", "azure")}
"""Clouds that can launch, with the module of each."""


def launchable() -> tuple[str, ...]:
    """Return the names of the clouds that can launch machines."""
    return tuple(MODULES)


def is_ready(name: str) -> bool:
    """Whether a cloud can launch and there is something to launch with; asks nobody."""
    if name not in MODULES:
        return False
    from .rented import RentedCloud

    cloud = get(name)
    return cloud.usable() if isinstance(cloud, RentedCloud) else True


@cache
def get(name: str) -> Cloud:
    """Return the cloud called `name`; its SDK is imported now, not before.

    Raises
    ------
    SkyUsageError
        No cloud of that name can launch.
    """
    if name not in MODULES:
        hint = suggest(name, MODULES)
        raise SkyUsageError(f"cloud {name!r} cannot launch machines yet", hint=hint)
    return import_module(MODULES[name]).cloud
