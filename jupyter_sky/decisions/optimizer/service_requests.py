"""Requests for managed services that nothing can meet, and what comes nearest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.requests.geography import (
    SERVERLESS,
    provides_packages,
    requirement_name,
    split_requirements,
)
from jupyter_sky.base.requests.resources import Resources, format_option
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog import Catalog


def check_service(need: Resources, catalog: Catalog) -> None:
    """Raise an error for a version that no service has, and for what takes machines.

    Raises
    ------
    SkyNoOffer
        Names the nearest versions, what has accelerators, or the next size.
    """
    if not need.service:
        return
    from jupyter_sky.knowledge.catalog.managed_services import find_services

    known = [one for one in find_services(catalog) if provides_packages(need.service, one.packages)]
    if not known:
        raise _version_error(need, catalog)
    names = sorted({one.name for one in known})
    if not set(names) <= set(SERVERLESS):
        return
    if need.gpu:
        raise SkyNoOffer(
            _("{names} has no accelerators, and {request} asks for {gpu}").format(
                names=_(" and ").join(names), request=need.command_line(), gpu=need.gpu
            ),
            hint=_("leave out --gpus, or take machines: --engine spark --gpus {gpu}").format(
                gpu=need.gpu
            ),
        )
    _check_size(need, names)


def _check_size(need: Resources, names: list[str]) -> None:
    """Raise an error for a size that no service without machines sells."""
    from jupyter_sky.knowledge.catalog.managed_services import requested_size

    sizes = [requested_size(need, name) for name in names]
    if any(_admits(need, *size) for size in sizes):
        return
    cpus, memory = min(sizes)
    raise SkyNoOffer(
        _("{names} does not sell {request}: driver and executors need more").format(
            names=_(" and ").join(names), request=need.command_line()
        ),
        hint=_("the next size: --cpus {cpus:g} --memory {memory:g} --nodes {nodes}").format(
            cpus=cpus, memory=memory, nodes=need.nodes
        ),
    )


def _admits(need: Resources, cpus: float, memory: float) -> bool:
    """Whether vCPUs and GiB of a node are what a request asks for."""
    asked = ((need.cpus, cpus), (need.memory, memory))
    return all(amount is None or amount.admits(size) for amount, size in asked)


def _version_error(need: Resources, catalog: Catalog) -> SkyNoOffer:
    from jupyter_sky.knowledge.catalog.managed_services import find_services, nearest_versions

    services, packages = split_requirements(need.service)
    asked = (packages or services)[0]
    name = requirement_name(asked)
    among = [
        one
        for one in find_services(catalog)
        if not services or provides_packages(map(requirement_name, services), one.packages)
    ]
    number = re.search(r"\d[\d.]*", asked)
    nearest = nearest_versions(among, name, number[0] if number else "")
    return SkyNoOffer(
        _("--service {asked}: no managed service has that").format(asked=",".join(need.service)),
        hint=_("nearest: {versions}").format(
            versions=_(" and ").join(
                format_option("service", f'"{name}=={version}"') for version in nearest
            )
        )
        if nearest
        else None,
    )
