"""Places of stores, as the catalog writes them: ``aws/us-east-1``, ``local``, ``r2``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from jupyter_sky.base.clouds.register import find_facts, find_store
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic
from jupyter_sky.machines.storage.stores.uri import StorageUri

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.catalog import Catalog


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


# -- Prices of transfers: from bytes, requests and places to USD, each with its -------------------

_SURENESS = ("listed", "assumed", "estimate", "not known")


@dataclass(frozen=True, slots=True)
class Amount:
    """Amount of USD with its basis.

    Attributes
    ----------
    usd : float or None
        None where a part of it is not known.
    basis : str
        ``listed``, ``assumed``, ``estimate`` or ``not known``: that of its least sure part.
    """

    usd: float | None = 0.0
    basis: str = "listed"

    def __add__(self, other: Amount) -> Amount:
        if other.usd == 0.0 and other.basis == "listed":
            return self
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Amount(usd, max(self.basis, other.basis, key=_SURENESS.index))


@dataclass(frozen=True, slots=True)
class Charge:
    """Price of a transfer.

    Attributes
    ----------
    egress, requests, retrieval : Amount
        Bytes that leave a cloud or region, requests, and bytes of classes that charge for reading.
    """

    egress: Amount = field(default_factory=Amount)
    requests: Amount = field(default_factory=Amount)
    retrieval: Amount = field(default_factory=Amount)

    @property
    def usd(self) -> float | None:
        """Sum; None where a part of it is not known."""
        return (self.egress + self.requests + self.retrieval).usd

    @property
    def known_usd(self) -> float:
        """Sum of what is known of it."""
        return sum(part.usd or 0.0 for part in (self.egress, self.requests, self.retrieval))

    def __add__(self, other: Charge) -> Charge:
        return Charge(
            self.egress + other.egress,
            self.requests + other.requests,
            self.retrieval + other.retrieval,
        )

    def __str__(self) -> str:
        texts = [
            _text(self.egress, _("{usd} egress ({basis})"), _("price of the egress not known")),
            _text(
                self.requests, _("{usd} requests ({basis})"), _("price of the requests not known")
            ),
        ]
        if self.retrieval.usd != 0.0:
            texts.append(
                _text(
                    self.retrieval,
                    _("{usd} retrieval ({basis})"),
                    _("price of the retrieval not known"),
                )
            )
        return " + ".join(texts)


def _text(amount: Amount, known: str, unknown: str) -> str:
    if amount.usd is None:
        return unknown
    return known.format(usd=format_usd(amount.usd), basis=amount.basis)


@dataclass(frozen=True, slots=True)
class ColdBytes:
    """Bytes of one storage class that charges for reading."""

    storage_class: str
    nbytes: int


def price_transfer(
    catalog: Catalog,
    route: Sequence[str],
    traffic: TransferTraffic,
    cold: Iterable[ColdBytes] = (),
) -> Charge:
    """Return the price of a transfer.

    Parameters
    ----------
    catalog
        Prices.
    route
        Places that the contents pass, from source to target, as `places.place_of` writes them.
    traffic
        Requests of both ends, and bytes.
    cold
        Bytes of the source in classes that charge for reading.
    """
    source, target = route[0], route[-1]
    egress = Amount()
    for position, (here, there) in enumerate(pairwise(route)):
        nbytes = traffic.target.sent if position else traffic.moved
        egress += egress_amount(catalog, here, there, nbytes)
    for place, counts in ((source, traffic.source), (target, traffic.target)):
        egress += egress_amount(catalog, place, INTERNET, counts.received if place else 0)
    requests = request_amount(catalog, source, traffic.source)
    requests += request_amount(catalog, target, traffic.target)
    retrieval = Amount()
    for each in cold:
        retrieval += _retrieval(catalog, source, each)
    return Charge(egress, requests, retrieval)


def egress_amount(catalog: Catalog, source: str, target: str, nbytes: int) -> Amount:
    """Return the price of bytes that go from one place to another."""
    if not nbytes or (source and not is_priced(source)):
        return Amount()
    if source == R2:
        price = catalog.request_price(R2, "", "egress")
        return Amount(None if price.usd is None else price.usd * nbytes / 1e9, price.basis)
    if not source or not target:
        return Amount(None, "not known")
    found = catalog.egress(catalog_location(source), catalog_location(target), nbytes / 1e9)
    return Amount(found.usd, found.basis)


def request_amount(catalog: Catalog, place: str, counts: Traffic) -> Amount:
    """Return the price of requests to the store of a place."""
    if not place and (counts.writes or counts.reads):
        return Amount(None, "not known")
    total = Amount()
    for kind, count in (("write", counts.writes), ("read", counts.reads)):
        if not count or (place and not is_priced(place)):
            continue
        cloud, __, region = place.partition("/")
        price = catalog.request_price(cloud, region, kind)
        total += Amount(None if price.usd is None else price.usd * count, price.basis)
    return total


def _retrieval(catalog: Catalog, place: str, cold: ColdBytes) -> Amount:
    cloud, __, region = place.partition("/")
    price = catalog.request_price(cloud, region, "retrieval", cold.storage_class)
    usd = None if price.usd is None else price.usd * cold.nbytes / 1e9
    return Amount(usd, price.basis)
