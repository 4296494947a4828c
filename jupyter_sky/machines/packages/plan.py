"""Packages that a machine needs so that modules can be imported there as they are here."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urljoin, urlsplit

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.remote.package_names import normalized_name, without_credentials
from jupyter_sky.base.translation import _
from jupyter_sky.machines.packages.contents import SentPackage, package_files, provides_module
from jupyter_sky.machines.packages.indexes import (
    IndexSettings,
    is_public,
    is_reachable,
    read_settings,
)
from jupyter_sky.machines.packages.origins import (
    InstallRecord,
    PackageOrigin,
    decide_origin,
    read_install_record,
)

# -- Lookup of a name in a private index, page or folder that this machine is set up with ---------
#
# Only places that are not public are asked: installing from here, pip and uv ask them for every
# name anyway.

CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
UNREACHABLE_SECONDS = 60.0
"""A place that has not answered is not asked again for so long."""
SIMPLE_API_TYPES = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html"
)
_LINK = re.compile(r"""href\s*=\s*["']([^"'#]+)""", re.IGNORECASE)


class IndexLookup:
    """Answers of private places, each asked once for a name."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], bool] = {}
        self._unreachable: dict[str, float] = {}
        self._lock = threading.Lock()

    def has(self, place: str, name: str, is_index: bool) -> bool | None:
        """Return whether a place has a package; None if it cannot be reached.

        Parameters
        ----------
        place
            Address of an index or page, or path of a folder.
        name
            Normalized name of the package.
        """
        key = place, name
        with self._lock:
            if key in self._known:
                return self._known[key]
            if self._unreachable.get(place, 0.0) > time.monotonic():
                return None
        is_listed = _has(place, name, is_index)
        with self._lock:
            if is_listed is None:
                self._unreachable[place] = time.monotonic() + UNREACHABLE_SECONDS
            else:
                self._known[key] = is_listed
        return is_listed


def _has(place: str, name: str, is_index: bool) -> bool | None:
    parts = urlsplit(place)
    if parts.scheme in ("http", "https"):
        return _page_lists(f"{place.rstrip('/')}/{name}/" if is_index else place, name, is_index)
    folder = Path(unquote(parts.path)) if parts.scheme == "file" else Path(place).expanduser()
    try:
        if is_index:
            return (folder / name).is_dir()
        return any(package_of(path.name) == name for path in folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return None


def _page_lists(address: str, name: str, is_index: bool) -> bool | None:
    import requests

    try:
        response = requests.get(
            address, headers={"Accept": SIMPLE_API_TYPES}, timeout=(CONNECT_SECONDS, READ_SECONDS)
        )
    except (requests.RequestException, OSError):
        return None
    if response.status_code in (404, 410):
        return False
    if response.status_code != 200:
        return None
    if is_index:
        return True
    paths = (urlsplit(urljoin(address, link)).path for link in _LINK.findall(response.text))
    return any(package_of(unquote(path.rpartition("/")[2])) == name for path in paths)


def package_of(file: str) -> str:
    """Return the normalized name of the package that a wheel or source archive is of.

    Examples
    --------
    >>> package_of("Acme_Secret-1.4.2-py3-none-any.whl"), package_of("acme-secret-1.4.2.tar.gz")
    ('acme-secret', 'acme-secret')
    """
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    try:
        if file.endswith(".whl"):
            return parse_wheel_filename(file)[0]
        return parse_sdist_filename(file)[0]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""


# -- Packages that a machine needs so that modules can be imported there as they are --------------

MAX_LOOKUPS = 8
"""Most concurrent lookups in indexes of this machine."""
OWN_PACKAGES = "jupyter-sky"
"""Name of this package, which every engine has."""
_lookup = IndexLookup()


@dataclass(frozen=True, slots=True)
class PackagePlan:
    """Packages for a machine.

    Attributes
    ----------
    requirements : dict of str to str
        ``name==version`` of packages that are asked of an index, by name.
    sent : tuple of SentPackage
        Packages that are sent from here. One without files cannot be sent.
    dropped : tuple of str
        Names of sent packages that a package of an index depends on: no index is asked for them.
    environment : dict of str to str
        Variables for the installer there: index settings, with credentials.
    """

    requirements: Mapping[str, str] = field(default_factory=dict)
    sent: tuple[SentPackage, ...] = ()
    dropped: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def distributions_of(modules: Iterable[str]) -> dict[str, str]:
    """Return the installed distribution that each module comes from; others are left out.

    Examples
    --------
    >>> distributions_of(["numpy", "sys", "nowhere"])
    {'numpy': 'numpy'}
    """
    distributions: dict[str, str] = {}
    for module in modules:
        if name := _owning_distribution(module):
            distributions[module] = name
    return distributions


def _owning_distribution(module: str) -> str:
    from packaging.utils import canonicalize_name

    if module in sys.stdlib_module_names:
        return ""
    declared = _declared_modules(_site_fingerprint()).get(module)
    if declared:
        return canonicalize_name(declared[0])
    for distribution, record in _editable_distributions(_site_fingerprint()):
        if provides_module(distribution, record, module):
            return record.name
    return ""


def editable_owner(module: str) -> str:
    """Return the editable distribution that a module is imported from; empty if from none.

    Files in the folder of a project itself are those of whoever works there, not its modules.

    Examples
    --------
    >>> editable_owner("numpy")
    ''
    """
    folders = ("site-packages", "dist-packages")
    state = tuple(entry for entry in _site_fingerprint() if entry[0].endswith(folders))
    for distribution, record in _editable_distributions(state):
        if provides_module(distribution, record, module):
            file = record.source / f"{module}.py" if record.source is not None else None
            return "" if file is not None and file.exists() else record.name
    return ""


def _site_fingerprint() -> tuple[tuple[str, int], ...]:
    """Return the state of the package folders; it changes when one is installed or removed."""
    state: list[tuple[str, int]] = []
    for entry in sys.path:
        try:
            state.append((entry, os.stat(entry or ".").st_mtime_ns))
        except OSError:
            continue
    return tuple(state)


@lru_cache(maxsize=1)
def _declared_modules(_state: tuple[tuple[str, int], ...]) -> dict[str, list[str]]:
    names = metadata.packages_distributions()
    return {name: sorted(set(distributions)) for name, distributions in names.items()}


@lru_cache(maxsize=2)
def _editable_distributions(
    _state: tuple[tuple[str, int], ...],
) -> list[tuple[metadata.Distribution, InstallRecord]]:
    records = [
        (distribution, read_install_record(distribution))
        for distribution in metadata.distributions()
        if _is_direct(distribution)
    ]
    return [(distribution, record) for distribution, record in records if record.source is not None]


def _is_direct(distribution: metadata.Distribution) -> bool:
    return distribution.read_text("direct_url.json") is not None


@cache
def local_index_settings() -> IndexSettings:
    """Return the index settings of this machine, read once."""
    return read_settings()


def find_origin(name: str, settings: IndexSettings | None = None) -> PackageOrigin | None:
    """Return the source of an installed distribution for other machines; None if not installed."""
    distribution = _distribution(name)
    if distribution is None:
        return None
    return decide_origin(
        read_install_record(distribution), settings or local_index_settings(), _lookup.has
    )


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def plan_packages(
    names: Iterable[str],
    modules: Iterable[str] = (),
    *,
    extras: Mapping[str, Iterable[str]] = MappingProxyType({}),
    settings: IndexSettings | None = None,
    send_all: bool = False,
) -> PackagePlan:
    """Plan the sources of installed distributions and their dependencies for another machine.

    Parameters
    ----------
    names
        Normalized names of distributions.
    modules
        Top-level modules of theirs that are imported.
    extras
        Requested extras by name.
    send_all
        Send packages of a private index, which the machine could not reach.
    """
    settings = settings or local_index_settings()
    roots = [*dict.fromkeys(names)]
    needs = _dependency_closure((name, frozenset(extras.get(name, ()))) for name in roots)
    origins = _origins(needs, settings)
    if send_all:
        origins = {
            name: PackageOrigin.SENT if origin is PackageOrigin.INDEX else origin
            for name, origin in origins.items()
        }
    sent = {name for name, origin in origins.items() if origin is PackageOrigin.SENT} - {
        OWN_PACKAGES
    }
    requested = {name for name in roots if name not in sent}
    requested |= {need for name in sent for need in needs[name] if need not in sent} - {
        OWN_PACKAGES
    }
    dropped = {need for name, needed in needs.items() if name not in sent for need in needed} & sent
    return PackagePlan(
        {name: f"{name}=={_version(name)}" for name in sorted(requested)},
        tuple(_contents(name, tuple(sorted(modules))) for name in sorted(sent)),
        tuple(sorted(dropped)),
        settings.environment(public_only=True),
    )


def _dependency_closure(roots: Iterable[tuple[str, frozenset[str]]]) -> dict[str, set[str]]:
    """Return installed distributions with the installed ones that each needs."""
    needs: dict[str, set[str]] = {}
    waiting = [*roots]
    seen = set[tuple[str, frozenset[str]]]()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        if (distribution := _distribution(name)) is None:
            continue
        requirements = dict(_requires(distribution, extras))
        needs.setdefault(name, set()).update(each for each in requirements if _distribution(each))
        waiting += requirements.items()
    return needs


def _requires(
    distribution: metadata.Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the requirements of a distribution that apply here, with their extras."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    for text in distribution.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def _origins(names: Iterable[str], settings: IndexSettings) -> dict[str, PackageOrigin]:
    """Find the origins of distributions concurrently: each may ask an index."""
    origins: dict[str, PackageOrigin] = {}

    def find(name: str) -> None:
        origins[name] = find_origin(name, settings) or PackageOrigin.SENT

    with ThreadPoolExecutor(MAX_LOOKUPS) as workers:
        list(workers.map(find, names))
    return origins


def _version(name: str) -> str:
    return metadata.version(name)


def _contents(name: str, modules: Iterable[str]) -> SentPackage:
    distribution = metadata.distribution(name)
    return package_files(distribution, read_install_record(distribution), modules)


def split_requirements(
    packages: Iterable[str], settings: IndexSettings | None = None
) -> tuple[list[str], list[str]]:
    """Split packages that a user names into those for an index, and names of those to send.

    Returns
    -------
    tuple of list of str
        Unchanged requirements, files and addresses; normalized names to send.

    Raises
    ------
    SkyUsageError
        Another version is asked for of a package that no index is asked for.
    """
    from packaging.requirements import Requirement

    requested: list[str] = []
    sent: list[str] = []
    for package in packages:
        name = normalized_name(package)
        if not name or find_origin(name, settings) is not PackageOrigin.SENT:
            requested.append(package)
        elif Requirement(package).specifier.contains(_version(name), prereleases=True):
            sent.append(name)
        elif _is_direct(metadata.distribution(name)):
            raise SkyUsageError(
                _(
                    "{package}: {name} {name2} is installed here, from a folder, an "
                    "archive or a repository, and no index is asked for that name"
                ).format(package=package, name=name, name2=_version(name)),
                hint=_(
                    "name it without a version to send what is here, or a wheel of it by "
                    "its path: ./{name}.whl"
                ).format(name=name.replace("-", "_")),
            )
        else:
            requested.append(package)
    return requested, sent


def local_only_packages(packages: Iterable[str], settings: IndexSettings) -> dict[str, str]:
    """Return packages that an index or folder of this machine alone has, with its address.

    Another machine does not reach it, and asks its own index for a package of the same name.
    """
    places = [address for address in (settings.default, *settings.private_sources) if address]
    indexes = {settings.default, *settings.extra}
    addresses: dict[str, str] = {}
    for place in [
        address for address in places if not is_public(address) and not is_reachable(address)
    ]:
        for package in packages:
            name = normalized_name(package)
            if name and _lookup.has(place, name, place in indexes):
                addresses.setdefault(name, without_credentials(place))
    return addresses


def plan_named(packages: Iterable[str], settings: IndexSettings | None = None) -> PackagePlan:
    """Plan the sources of packages that a user names and their dependencies here.

    Raises
    ------
    SkyUsageError
        Another version is asked for of a package that no index is asked for.
    """
    from packaging.requirements import Requirement

    settings, packages = settings or local_index_settings(), [*packages]
    requested, sent = split_requirements(packages, settings)
    names = {normalized_name(package) for package in requested} - {""}
    given = {name: package for package in packages if (name := normalized_name(package))}
    extras = {name: Requirement(package).extras for name, package in given.items()}
    roots = [*sent, *filter(_distribution, names)]
    plan = plan_packages(roots, extras=extras, settings=settings)
    dependencies = {name: pin for name, pin in plan.requirements.items() if name not in names}
    return replace(
        plan,
        requirements={**{package: package for package in requested}, **dependencies},
        environment=settings.environment(),
    )
