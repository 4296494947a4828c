"""Managed services that tasks ask for, as Listing 1 of the SkyPilot paper writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.geography import parse_service
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _


@dataclass(frozen=True, slots=True, init=False)
class AnalyticsService:
    """Engine for data that outgrow one machine, wherever it costs least.

    Parameters
    ----------
    dependencies
        Packages with their versions: ``{"spark": "3.5.*"}``, ``{"spark": ">=3.4,<4"}``, or names
        alone.
    resources
        Size and number of its nodes, the master included.
    services
        Services to choose from, such as ``("emr", "dataproc")``; all unless given.

    Raises
    ------
    SkyUsageError
        A package or a service has an unknown name, or a version is none.

    Examples
    --------
    >>> AnalyticsService({"Spark": "3.1.2"}, Resources(cpu=16, num_nodes=3)).request.command_line()
    '--cpus 16 --nodes 3 --service spark==3.1.2'
    """

    request: Resources
    """The same as a request for machines."""

    def __init__(
        self,
        dependencies: Mapping[str, str] | Iterable[str],
        resources: Resources | Mapping[str, Any] | None = None,
        services: Iterable[str] = (),
    ) -> None:
        if isinstance(dependencies, str):
            dependencies = [dependencies]
        if isinstance(dependencies, Mapping):
            items = [f"{name}{_clause(version)}" for name, version in dependencies.items()]
        else:
            items = list(dependencies)
        if not items:
            raise SkyUsageError(
                _("AnalyticsService: it needs an engine"),
                hint=_('such as AnalyticsService({"spark": "3.5.*"})'),
            )
        named = [services] if isinstance(services, str) else list(services)
        need = resources if isinstance(resources, Resources) else Resources.parse(**resources or {})
        service = parse_service(",".join([*named, *items]), "AnalyticsService:")
        object.__setattr__(self, "request", replace(need, service=service))


def _clause(version: str) -> str:
    """Return a version as a clause of a requirement.

    Examples
    --------
    >>> _clause("3.1.2"), _clause(">=3.4"), _clause("")
    ('==3.1.2', '>=3.4', '')
    """
    text = str(version).strip()
    return text if not text or re.match(r"[<>=!~]", text) else f"=={text}"
