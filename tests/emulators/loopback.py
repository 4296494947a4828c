"""A whole cloud on this machine: its API over HTTPS, and behind it machines reached by SSH."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from tempfile import TemporaryDirectory
from typing import Any

from .fleet import Fleet
from .object_store import ObjectStore

CLOUDS = {
    "aws": ("tests.emulators.ec2", "Ec2"),
    "gcp": ("tests.emulators.gce", "Compute"),
    "azure": ("tests.emulators.arm", "Arm"),
}


@dataclass
class Loopback:
    """A cloud with its machines.

    Attributes
    ----------
    api
        The emulator: what it refuses, what was asked of it.
    env : dict
        Environment of a process that uses it.
    """

    api: Any
    fleet: Fleet
    env: dict[str, str] = field(default_factory=dict)

    def machines(self) -> list[dict[str, Any]]:
        """Machines that have not ended, as the cloud itself knows."""
        return self.api.machines()


PACKAGES = "matplotlib numpy pandas scikit-learn tqdm".split()
"""Packages that notebooks of the tests import, beside what engines need."""


@cache
def warm_cache() -> None:
    """Have in uv's cache what machines install: they themselves reach no package index."""
    import uv

    from jupyter_sky.base.remote.environment_spec import engine_pins

    pins = [*engine_pins(), *(f"{name}=={metadata.version(name)}" for name in PACKAGES)]
    with TemporaryDirectory() as folder:
        command = [uv.find_uv_bin(), "pip", "install", "-q", "--python", sys.executable]
        subprocess.run([*command, "--target", folder, *pins], check=True)


@contextmanager
def loopback(
    name: str, minute: float = 60.0, cpus: float = 0.0, **settings: Any
) -> Iterator[Loopback]:
    """Open a cloud; nothing of it is left at the end.

    Parameters
    ----------
    minute
        Seconds that a minute takes where machines or the cloud wait for the end of a lease.
    cpus
        See `Fleet`.
    """
    warm_cache()
    module, kind = CLOUDS[name]
    if name != "azure":  # there a machine itself knows when its time is over
        settings["minute"] = minute
    with Fleet(minute=minute, cpus=cpus) as fleet:
        api = getattr(import_module(module), kind)(fleet, **settings)
        try:
            yield Loopback(api, fleet, api.env() | machine_env(fleet))
        finally:
            api.close()


@contextmanager
def bucket_beside(cloud: Loopback) -> Iterator[ObjectStore]:
    """Open a store with an empty ``bucket``, which a cloud's machines reach with its keys."""
    with ObjectStore("r2", min_part=1024, host=cloud.fleet.gateway) as made:
        made.create("bucket")
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        made.account.keys.update([tuple(cloud.env[name] for name in names)])
        yield made


def machine_env(fleet: Fleet) -> dict[str, str]:
    """Settings by which machines of a fleet are reached."""
    env = {"SKY_LOGIN": fleet.user} if fleet.user else {}
    return env | ({"SKY_SSH_PORT": str(fleet.port)} if fleet.port != 22 else {})
