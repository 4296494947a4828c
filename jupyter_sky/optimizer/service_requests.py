"""Requests for managed services that nothing can meet, and what comes nearest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import SkyNoOffer
from ..geography import SERVERLESS, provides_packages, requirement_name, split_requirements
from ..resources import Resources, format_option
from ..translation import _

if TYPE_CHECKING:
    from ..catalog import Catalog


def check_service(need: Resources, catalog: Catalog) -> None:
    """Raise an error for a version that no service has, and for accelerators without machines.

    Raises
    ------
    SkyNoOffer
        Names the nearest versions, or what has accelerators.
    """
    if not need.service:
        return
    known = [one for one in catalog.services if provides_packages(need.service, one.packages)]
    if not known:
        raise _version_error(need, catalog)
    if need.gpu and all(one.name in SERVERLESS for one in known):
        names = sorted({one.name for one in known})
        raise SkyNoOffer(
            _("{names} has no accelerators, and {request} asks for {gpu}").format(
                names=_(" and ").join(names), request=need.command_line(), gpu=need.gpu
            ),
            hint=_("leave out --gpus, or take machines: --engine spark --gpus {gpu}").format(
                gpu=need.gpu
            ),
        )


def _version_error(need: Resources, catalog: Catalog) -> SkyNoOffer:
    from ..catalog.managed_services import nearest_versions

    services, packages = split_requirements(need.service)
    asked = (packages or services)[0]
    name = requirement_name(asked)
    among = [
        one
        for one in catalog.services
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
