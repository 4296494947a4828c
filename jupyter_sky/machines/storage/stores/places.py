"""Places of stores, as the catalog writes them: ``aws/us-east-1``, ``local``, ``r2``."""

from __future__ import annotations

from jupyter_sky.base.clouds.register import find_facts, find_store
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.uri import StorageUri

LOCAL = "local"
"""Place of this machine."""
R2 = "r2"
"""Place of all buckets of R2, whose region nobody chooses."""
INTERNET = "internet"


def place_of(store: Store, uri: StorageUri) -> str:
    """Return the place of a store as far as it is known; empty where nobody has told it.

    Examples
    --------
    >>> from jupyter_sky.machines.storage.stores.stores import open_store
    >>> uri = StorageUri.parse("file:/data")
    >>> place_of(open_store(uri), uri)
    'local'
    """
    if uri.is_local:
        return LOCAL
    options = {**store.uri.options, **uri.options}  # the settings may name an endpoint
    if place := options.get("place"):
        return place
    if uri.scheme == "r2":
        return R2
    if options.get("endpoint"):
        return ""
    cloud, region = find_store(uri.scheme), getattr(store, "region", "")
    return "/".join(part for part in (cloud, region) if cloud and part)


def ask_place(store: Store, uri: StorageUri) -> str:
    """Return the place of a store after asking it for the region of its bucket.

    Raises
    ------
    SkyStorageError
        The store tells another region than its address.
    """
    place = place_of(store, uri)
    ask = getattr(store, "ask_region", None)
    told = ask() if ask is not None and place not in (LOCAL, R2) else ""
    cloud, __, region = place.partition("/")
    if not told or told == region:
        return place
    if uri.options.get("place"):
        raise SkyStorageError(
            _("{uri}: the store says that it is in {told}, not in {region}").format(
                uri=uri, told=told, region=region
            ),
            hint=_("write place={cloud}/{told}").format(cloud=cloud, told=told),
        )
    return f"{cloud}/{told}" if cloud else ""


def is_priced(place: str) -> bool:
    """Return whether a place is of a cloud that bills what leaves it."""
    if place in (R2, INTERNET):
        return place == R2
    return bool(place) and not find_facts(place.partition("/")[0]).on_premises


def catalog_location(place: str) -> str:
    """Return a place as a location of the catalog: machines of no cloud are on the internet."""
    return place if is_priced(place) and place != R2 else INTERNET
