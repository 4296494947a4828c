"""Residency of data: areas that they may not leave, checked before the first byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.geography import in_area, parse_area
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import SkyResidency
from jupyter_sky.machines.storage.stores.places import LOCAL
from jupyter_sky.machines.storage.stores.uri import StorageUri

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.catalog import Catalog

_SEVERAL_REGIONS = {"eu": ("", "EU"), "eur4": ("", "EU"), "us": ("US", "US"), "nam4": ("US", "US")}
"""Country and jurisdiction of Google's buckets that lie in several regions."""


@dataclass(frozen=True, slots=True)
class ResidencyRule:
    """Areas that data may not leave.

    Attributes
    ----------
    areas : tuple of str
        Countries and jurisdictions, such as ``EU``; ``local`` is this machine.
    line : str
        The line that says so, for messages.
    """

    areas: tuple[str, ...]
    line: str

    @classmethod
    def parse(cls, text: str, line: str) -> ResidencyRule:
        """Read areas, separated by commas or spaces.

        Examples
        --------
        >>> ResidencyRule.parse("eu, ch", "--residency").areas
        ('EU', 'CH')
        """
        words = text.replace(",", " ").split()
        areas = [LOCAL if word == LOCAL else parse_area(word, line) for word in words]
        return cls(tuple(dict.fromkeys(areas)), f"{line} {text!r}")


@dataclass(frozen=True, slots=True)
class Station:
    """Place that data pass, or lie in.

    Attributes
    ----------
    name : str
        Address or machine, for messages.
    place : str
        As `places.place_of` writes it; empty where it is not known.
    """

    name: str
    place: str


def find_rules(
    uris: Iterable[StorageUri], configured: Mapping[str, str], given: str = ""
) -> list[ResidencyRule]:
    """Return the rules of a transfer.

    Parameters
    ----------
    uris
        Both of its addresses.
    configured
        Setting ``Sky.residency``: areas by the beginning of an address.
    given
        Areas that the call itself names.
    """
    rules = [ResidencyRule.parse(given, "--residency")] if given else []
    for uri in uris:
        address = str(StorageUri(uri.scheme, uri.bucket, uri.key, uri.account))
        rules += [
            ResidencyRule.parse(areas, f"Sky.residency[{prefix!r}] =")
            for prefix, areas in configured.items()
            if _is_below(address, prefix)
        ]
    return list(dict.fromkeys(rules))


def _is_below(address: str, prefix: str) -> bool:
    bare = prefix.rstrip("/")
    return address == bare or address.startswith(bare + "/")


def check_residency(
    catalog: Catalog, rules: Sequence[ResidencyRule], stations: Sequence[Station]
) -> None:
    """Raise SkyResidency where data would leave the areas of a rule; asks nobody.

    Parameters
    ----------
    stations
        Source, target, and every machine between them. Data that lie on this machine may leave it.
    """
    for rule in rules:
        for position, station in enumerate(stations):
            if position == 0 and station.place == LOCAL:
                continue
            if problem := _problem(catalog, rule, station):
                raise SkyResidency(
                    _("{name}: {problem}: 0 bytes were sent ({line})").format(
                        name=station.name, problem=problem, line=rule.line
                    ),
                    hint=_("choose a place in {areas}, or change that line").format(
                        areas=", ".join(rule.areas)
                    ),
                )


def _problem(catalog: Catalog, rule: ResidencyRule, station: Station) -> str:
    """Return the reason why a place is not allowed; empty if it is."""
    areas = ", ".join(rule.areas)
    if station.place == LOCAL:
        if LOCAL in rule.areas:
            return ""
        return _("nobody has said that it is in {areas}").format(areas=areas)
    cloud, __, region = station.place.partition("/")
    country, jurisdiction = _SEVERAL_REGIONS.get(region, ("", ""))
    if not jurisdiction and cloud:
        found = catalog.region(cloud, region.partition("/")[0])
        country, jurisdiction = found.country, found.jurisdiction
    if not country and not jurisdiction:
        return _("the country of its place is not known, which must be in {areas}").format(
            areas=areas
        )
    if any(in_area(area, country, jurisdiction) for area in rule.areas if area != LOCAL):
        return ""
    return _("{place} is in {country}, not in {areas}").format(
        place=station.place, country=country or jurisdiction, areas=areas
    )
