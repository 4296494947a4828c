"""Register of clouds: the built-in ones, then those of entry points.

Reading entry points takes tens of milliseconds: it is done once, for a name that is not built in.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ..errors import SkyUsageError, suggest
from .facts import API_VERSION, BUILT_IN, CloudFacts

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "jupyter_sky.providers"
"""Group of entry points, each a subclass of `Provider` by the name of its cloud."""


def built_in_names() -> tuple[str, ...]:
    """Return the names of the clouds of this package."""
    return tuple(BUILT_IN)


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of other packages by name; a built-in name wins."""
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


def installed_names() -> tuple[str, ...]:
    """Return the names of the clouds that other packages add."""
    return tuple(sorted(_entry_points()))


def is_known(name: str) -> bool:
    """Whether a cloud is built in or added by another package; imports none."""
    return name in BUILT_IN or name in _entry_points()


@cache
def find_provider(name: str) -> type[CloudFacts]:
    """Return the driver that another package adds for a cloud.

    Parameters
    ----------
    name
        Of a cloud that is not built in.

    Raises
    ------
    SkyUsageError
        No package adds the cloud, its module cannot be imported, or it is no `Provider`.
    """
    point = _entry_points().get(name)
    if point is None:
        known = (*BUILT_IN, *_entry_points())
        raise SkyUsageError(f"{name!r} is not a known cloud", hint=suggest(name, known))
    try:
        found = point.load()
    except Exception as error:
        raise SkyUsageError(
            f"{name}: its driver {point.value} cannot be imported: {error}",
            hint="install its package again, or a version that fits this jupyter_sky",
        ) from error
    if not (isinstance(found, type) and issubclass(found, CloudFacts)):
        raise SkyUsageError(f"{name}: {point.value} is no subclass of `Provider`")
    if found.name != name:
        raise SkyUsageError(f"{name}: {point.value} calls its cloud {found.name!r}")
    if found.api_version != API_VERSION:
        raise SkyUsageError(
            f"{name}: its driver is written for version {found.api_version} of the protocol, "
            f"and this is version {API_VERSION}",
            hint="install a version of its package that fits this jupyter_sky",
        )
    return found


def find_facts(name: str) -> type[CloudFacts]:
    """Return the facts of a cloud; neutral ones for a name that no package has.

    A ledger holds clusters of clouds whose package has been uninstalled since.

    Examples
    --------
    >>> find_facts("aws").billing, find_facts("nowhere").billing
    ((1.0, 60.0), (0.0, 0.0))
    """
    if facts := BUILT_IN.get(name):
        return facts
    try:
        return find_provider(name)
    except SkyUsageError:
        return CloudFacts
