"""Register of clouds: the built-in ones, then those of entry points.

Reading entry points takes tens of milliseconds: it is done once, for a name that is not built in.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from jupyter_sky.base.clouds.cloud_facts import API_VERSION, LONGEST_BILLING_UNIT, CloudFacts
from jupyter_sky.base.clouds.index import BUILT_IN, MANAGED, ON_PREMISES, VENDORS
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "jupyter_sky.providers"
"""Group of entry points, each a subclass of `Provider` by the name of its cloud."""


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of other packages by name; a built-in name wins."""
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


def installed_names() -> tuple[str, ...]:
    """Return the names of the clouds that other packages add."""
    return tuple(sorted(_entry_points()))


def known_names() -> tuple[str, ...]:
    """Return the names of all clouds by the alphabet, those of one's own machines last.

    It reads the entry points: for completion, lists and errors, not for imports.

    Returns
    -------
    tuple of str
        As ``%%sky --cloud`` takes them.

    Examples
    --------
    >>> known_names()[0], "ssh" in known_names()
    ('aws', True)
    """
    return (*sorted({*VENDORS, *_entry_points()}), *ON_PREMISES)


def is_known(name: str) -> bool:
    """Whether a cloud is built in or added by another package; imports none."""
    return name in BUILT_IN or (name != "" and name in _entry_points())


def check_name(name: str, message: str, others: Iterable[str] = ()) -> None:
    """Raise SkyUsageError for a cloud that no package has, with the nearest names as hint.

    Parameters
    ----------
    name
        As it was written.
    message
        Of the error.
    others
        Words that stand for no cloud and are allowed, such as ``internet``.
    """
    if name not in others and not is_known(name):
        raise SkyUsageError(message, hint=suggest(name, (*known_names(), *others)))


def sort_names(names: Iterable[str]) -> list[str]:
    """Sort clouds: rented ones that can be launched, in the register's order, then the others.

    Examples
    --------
    >>> sort_names(["hyperstack", "azure", "aws", "local"])
    ['aws', 'azure', 'hyperstack', 'local']
    """
    places = {name: place for place, name in enumerate(BUILT_IN)}

    def rank(name: str) -> tuple[bool, int, str]:
        facts = find_facts(name)
        rented = facts.launchable and not facts.on_premises
        return not rented, places.get(name, len(places)) if rented else 0, name

    return sorted(names, key=rank)


@cache
def find_provider(name: str) -> type[CloudFacts]:
    """Return the provider that another package adds for a cloud.

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
        raise SkyUsageError(
            _("{name!r} is not a known cloud").format(name=name), hint=suggest(name, known_names())
        )
    try:
        found = point.load()
    except Exception as error:
        raise SkyUsageError(
            _("{name}: its provider {value} cannot be imported: {error}").format(
                name=name, value=point.value, error=error
            ),
            hint=_("install its package again, or a version that fits this jupyter_sky"),
        ) from error
    if not (isinstance(found, type) and issubclass(found, CloudFacts)):
        raise SkyUsageError(
            _("{name}: {value} is no subclass of `Provider`").format(name=name, value=point.value)
        )
    if found.name != name:
        raise SkyUsageError(
            _("{name}: {value} calls its cloud {name2!r}").format(
                name=name, value=point.value, name2=found.name
            )
        )
    if found.api_version != API_VERSION:
        raise SkyUsageError(
            _(
                "{name}: its provider is written for version {api_version} of the "
                "protocol, and this is version {api_version2}"
            ).format(name=name, api_version=found.api_version, api_version2=API_VERSION),
            hint=_("install a version of its package that fits this jupyter_sky"),
        )
    if max(found.billing) > LONGEST_BILLING_UNIT:
        raise SkyUsageError(
            _("{name}: billing {billing} exceeds a day; it is in seconds").format(
                name=name, billing=found.billing
            )
        )
    return found


def find_provider_problem(name: str) -> str:
    """Say why the provider of an installed cloud cannot be used; empty where there is none."""
    if name not in BUILT_IN and name in _entry_points():
        try:
            find_provider(name)
        except SkyUsageError as error:
            return error.message
    return ""


def find_facts(name: str) -> type[CloudFacts]:
    """Return the facts of a cloud; neutral ones for a name that no package has.

    A ledger holds clusters of clouds whose package has been uninstalled since.

    Examples
    --------
    >>> find_facts("aws").billing, find_facts("nowhere").billing
    ((1.0, 60.0), (0.0, 0.0))
    """
    if facts := BUILT_IN.get(name) or MANAGED.get(name):
        return facts
    return _installed_facts(name) if name and name in _entry_points() else CloudFacts


@cache
def _installed_facts(name: str) -> type[CloudFacts]:
    """Return the facts of a provider; neutral ones where it cannot be used, which others tell."""
    try:
        return find_provider(name)
    except SkyUsageError:
        return CloudFacts


def find_store(scheme: str, host: str = "") -> str:
    """Return the cloud whose object store has a URI scheme, or a host in its web addresses.

    Parameters
    ----------
    scheme
        In lower case; ``https`` and the like belong to no cloud, and their host decides.
    host
        Of a web address.

    Returns
    -------
    str
        Name of the cloud; empty where the store is no cloud's.

    Examples
    --------
    >>> find_store("gs"), find_store("https", "data.blob.core.windows.net"), find_store("https")
    ('gcp', 'azure', '')
    """

    def is_own(facts: type[CloudFacts]) -> bool:
        return host.endswith(facts.storage_hosts) if host else scheme in facts.schemes

    for name, facts in BUILT_IN.items():
        if is_own(facts):
            return name
    return next((name for name in installed_names() if is_own(find_facts(name))), "")
