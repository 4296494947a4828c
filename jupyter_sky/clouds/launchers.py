"""Clouds that can launch machines, by name."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from jupyter_sky.base.clouds.index import BUILT_IN, MANAGED
from jupyter_sky.base.clouds.register import find_provider, installed_names, is_known
from jupyter_sky.base.errors import SkyError, SkyUsageError, suggest
from jupyter_sky.base.lazy_names import load_class
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.base import Cloud, Credentials, OnPremisesCloud
from jupyter_sky.clouds.launches.launch_support import (
    ON_PREMISES,
    is_rented,
    launchable,
)

if TYPE_CHECKING:
    from jupyter_sky.clouds.launches.launcher import Launcher
    from jupyter_sky.clouds.provider.protocol import Provider

log = logging.getLogger(__name__)
_SERVICE_CLOUD = "jupyter_sky.machines.services.service_cloud:ServiceCloud"
"""Cloud of sessions of a managed service, whose cells run on this machine."""

LIVE_SECONDS = 30.0
"""Age up to which stock and prices of a cloud count as those of now."""
_live_offers: dict[str, tuple[float, list[Offer]]] = {}


def is_ready(name: str) -> bool:
    """Whether a cloud can launch and there is something to launch with; asks nobody."""
    return name in ON_PREMISES or (is_rented(name) and get_launcher(name).has_credentials())


def on_premises_cloud(name: str) -> OnPremisesCloud:
    """Return a cloud of `ON_PREMISES`."""
    return cast(OnPremisesCloud, get(name))


def get_launcher(name: str) -> Launcher:
    """Return a cloud whose machines are rented."""
    return cast("Launcher", get(name))


@cache
def get(name: str) -> Cloud:
    """Return the cloud called `name`; its SDK is imported now, not before.

    Raises
    ------
    SkyUsageError
        No cloud of that name can launch.
    """
    if name in ON_PREMISES:
        return import_module(f"jupyter_sky.clouds.{name}").cloud
    if name in MANAGED:
        return load_class(_SERVICE_CLOUD)(_provider_class(name)())
    from jupyter_sky.clouds.launches.launcher import Launcher

    return Launcher(_provider_class(name)())


def _provider_class(name: str) -> type[Provider]:
    from jupyter_sky.clouds.provider.protocol import Provider

    facts = BUILT_IN.get(name) or MANAGED.get(name)
    if facts is None and is_known(name):
        facts = find_provider(name)
    if facts is not None and facts.provider:
        facts = load_class(facts.provider)
    if facts is None or not issubclass(facts, Provider):
        hint = suggest(name, launchable())
        raise SkyUsageError(
            _("cloud {name!r} cannot launch machines yet").format(name=name), hint=hint
        )
    return facts


def check(name: str) -> Credentials:
    """Return whether a cloud can be used; a provider that cannot be imported is told as well."""
    try:
        return get(name).check()
    except SkyUsageError as error:
        return Credentials(name, False, error.message, error.hint or "")


def external_offers(names: Collection[str]) -> list[Offer]:
    """Return what those among some clouds sell that the catalog does not know well enough.

    These are clouds of other packages, and clouds whose stock and prices are asked just before a
    launch. One that refuses is left out with a warning, unless no other one is named.
    """
    offers: list[Offer] = []
    for name in names:
        if name in BUILT_IN and not BUILT_IN[name].has_live_offers:
            continue
        try:
            offers += _list_offers(name)
        except SkyError as error:
            if len(names) == 1:
                raise
            log.warning("%s; its offers are left out", error.message)
    return offers


def _list_offers(name: str) -> list[Offer]:
    """Return what a cloud sells; a built-in one is asked once in `LIVE_SECONDS`."""
    if name not in BUILT_IN:
        return get_launcher(name).list_offers()
    now = time.monotonic()
    asked, offers = _live_offers.get(name, (-LIVE_SECONDS, []))
    if now - asked >= LIVE_SECONDS:
        offers = get_launcher(name).list_offers()
        _live_offers[name] = now, offers
    return offers


def reachable_names() -> tuple[str, ...]:
    """Return the names of all clouds that may have machines, those of other packages too."""
    return (*launchable(), *installed_names())


def launcher_names() -> tuple[str, ...]:
    """Return the names of all that may have launched something: clouds, and managed services."""
    return (*reachable_names(), *MANAGED)


def recorded_names() -> tuple[str, ...]:
    """Return the names of all that may have launched what is still up, by the notes of launches."""
    from jupyter_sky.clouds.launches.machine_records import launch_records

    noted = {record["cloud"] for _, record in launch_records().list_unfinished()}
    return (*ON_PREMISES, *sorted(noted))
