"""Completion of a form's fields, from names of the catalog and of this notebook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from jupyter_sky.base.clouds.index import LOCAL
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.cell_options.schema import BY_DEST
from jupyter_sky.base.requests.quantities import format_vcpus
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.forms.cell_line import Fields
from jupyter_sky.interfaces.forms.completion_names import complete_names
from jupyter_sky.knowledge.catalog import Catalog
from jupyter_sky.knowledge.catalog.filters import matching_rows
from jupyter_sky.knowledge.ledger.ledger import format_rate

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow, Store

LIMIT = 40
"""Largest number of choices in a list."""

_COUNTS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Completion:
    """A value that may be written into a field, with a note about it."""

    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class CompletionContext:
    """Names that no catalog has: see `interfaces.forms.completion_names.CompletionSources`.

    Attributes
    ----------
    up : tuple of ClusterRow
        The clusters that are up.
    notebook : str
        The notebook that the form is in: a cluster without a name is its notebook's own.
    local, remote : tuple of str
        Variables of the notebook and of its engines.
    store : Store or None
        Storage of what runs have measured; None where it cannot be read.
    """

    up: tuple[ClusterRow, ...] = ()
    notebook: str = ""
    local: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()
    store: Store | None = None

    def clusters(self) -> Iterable[str]:
        """Names of live clusters."""
        return [row.name for row in self.up]

    def local_names(self) -> Iterable[str]:
        """Variables that the cell reads, or that the notebook has."""
        return self.local

    def remote_names(self) -> Iterable[str]:
        """Variables that the cell makes, or that the engines have."""
        return self.remote

    def aliases(self) -> Iterable[str]:
        """Short names of options."""
        from jupyter_sky.base.settings.settings import Sky

        return Sky.load().aliases

    def places(self, kind: str) -> Iterable[str]:
        """Countries and jurisdictions of the catalog."""
        from jupyter_sky.knowledge.catalog import load

        return load().names(kind)

    def runs(self) -> Iterable[str]:
        """No field asks for a run."""
        return ()

    def tasks(self) -> Iterable[str]:
        """Tasks are named in other cells, which the form does not read."""
        return ()

    def graph_runs(self) -> Iterable[str]:
        """No field asks for a run of a graph."""
        return ()

    def bags(self) -> Iterable[str]:
        """No field asks for a bag of jobs."""
        return ()


def complete(
    key: str,
    text: str,
    fields: Fields = Fields(),  # noqa: B008 - it is frozen
    known: CompletionContext = CompletionContext(),
    catalog: Catalog | None = None,
) -> list[Completion]:
    """Return values that complete a text in a field, given the others: the nearest first.

    Parameters
    ----------
    key : str
        The field.
    text : str
        Text that has been typed; of a list, its last item.
    fields : Fields
        Content of the other fields: regions are those of the requested clouds.

    Examples
    --------
    >>> [choice.value for choice in complete("gpus", "a100")][:2]
    ['A100', 'A100-80GB']
    """
    if key not in BY_DEST:
        return []
    kind, text = BY_DEST[key].complete, text.strip()
    if kind in _BY_CATALOG:
        from jupyter_sky.knowledge.catalog import load

        found = _BY_CATALOG[kind](catalog or load(), text, _other_request(key, fields))
    else:
        found = (Completion(name) for name, __ in complete_names(kind, known) if kind)
    return _filter_completions(found, text)


def _other_request(key: str, fields: Fields) -> Resources:
    """Return the request of the other fields, as far as they can be parsed."""
    need = Resources()
    for other in ("cloud", "region", "gpus", "cpus", "memory", "arch"):
        value = fields.values.get(other)
        if other != key and isinstance(value, str) and value.strip():
            try:
                need = Resources.parse(**{**need.labels(), other: value})
            except SkyUsageError:
                continue  # it says so itself
    return need


def _filter_completions(found: Iterable[Completion], text: str) -> list[Completion]:
    """Choices that begin with the text, then those that contain it; each in the order given."""
    plain = _plain(text)
    choices = {choice.value: choice for choice in found if plain in _plain(choice.value)}
    ordered = sorted(choices.values(), key=lambda one: not _plain(one.value).startswith(plain))
    return ordered[:LIMIT]


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]", "", text).lower()


# -- names of the catalog ----------------------------------------------------------------------


def _gpus(catalog: Catalog, text: str, need: Resources) -> Iterator[Completion]:
    name, colon, __ = text.partition(":")
    if colon:
        yield from _counts(catalog, name, need)
        return
    cheapest = _cheapest(catalog, need.clouds)
    known = set(accelerators.names())
    # those that are sold come first, the others can be had from machines of one's own
    for gpu in sorted(
        {*cheapest, *known}, key=lambda gpu: (gpu not in cheapest, _natural_key(gpu))
    ):
        memory = (
            _("{memory:g} GiB").format(memory=accelerators.accelerator(gpu).memory)
            if gpu in known
            else ""
        )
        price = f"from {format_rate(cheapest[gpu])}" if gpu in cheapest else _("not on sale")
        yield Completion(gpu, ", ".join(filter(None, [memory, price])))


def _counts(catalog: Catalog, name: str, need: Resources) -> Iterator[Completion]:
    """Yield the numbers of a GPU that machines have."""
    try:
        gpu = accelerators.canonical(name)
    except SkyUsageError:
        return
    rows = catalog.offers.equal("accelerator", gpu)
    if need.clouds:
        rows &= catalog.offers.is_in("cloud", need.clouds)
    counts = np.unique(catalog.offers.values("accelerator_count")[rows])
    for count in counts[~np.isnan(counts)].tolist() or _COUNTS:
        yield Completion(f"{name}:{count:g}")


def _natural_key(text: str) -> list[tuple[int, str]]:
    """Order by which A10 comes before A100, and tpu-v3-8 before tpu-v3-32."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


_PRICES: WeakKeyDictionary[Catalog, dict[tuple[str, ...], dict[str, float]]] = WeakKeyDictionary()


def _cheapest(catalog: Catalog, clouds: tuple[str, ...]) -> dict[str, float]:
    """USD/h of the cheapest machine with each GPU, in either market."""
    known = _PRICES.setdefault(catalog, {})
    if clouds not in known:
        offers = catalog.offers
        rows = catalog.sold & ~offers.equal("accelerator", "")
        rows &= offers.is_in("cloud", clouds) if clouds else True
        codes = offers.values("accelerator")[rows]
        both = (offers.values(f"{market}_usd_h")[rows] for market in ("on_demand", "spot"))
        prices = np.fmin(*both)
        words, found = (
            offers.categories("accelerator"),
            np.full(len(offers.categories("accelerator")), np.inf),
        )
        np.minimum.at(found, codes, np.nan_to_num(prices, nan=np.inf))
        known[clouds] = {words[i]: float(found[i]) for i in np.flatnonzero(np.isfinite(found))}
    return known[clouds]


def _clouds(catalog: Catalog, text: str, need: Resources) -> Iterator[Completion]:
    counts = np.bincount(catalog.offers.values("cloud"), minlength=1).tolist()
    sold = dict(zip(catalog.offers.categories("cloud"), counts, strict=False))
    for name, __ in complete_names("cloud", CompletionContext()):
        note = find_facts(name).note or _("{sold:,} machines and places").format(
            sold=sold.get(name, 0)
        )
        yield Completion(name, note)


def _regions(catalog: Catalog, text: str, need: Resources) -> Iterator[Completion]:
    yield from (Completion(area, note) for area, note in _AREAS)
    if not need.clouds or LOCAL in need.clouds:
        yield Completion("this-machine", LOCAL)
    for (cloud, name), region in sorted(catalog.regions.items(), key=lambda one: one[0][1]):
        if catalog.offers.code("region", name) >= 0 and (not need.clouds or cloud in need.clouds):
            place = ", ".join(filter(None, [region.city, region.country]))
            yield Completion(name, f"{cloud}: {place}" if place else cloud)


_AREAS = (("eu", "all of the European Union"), ("us", "all of the United States"))


def _zones(catalog: Catalog, text: str, need: Resources) -> Iterator[Completion]:
    yield from _of_rows(catalog, matching_rows(catalog, need), "zone", "region")


def _types(catalog: Catalog, text: str, need: Resources) -> Iterator[Completion]:
    offers, rows = catalog.offers, matching_rows(catalog, need)
    __, first = np.unique(offers.values("instance_type")[rows], return_index=True)
    rows = rows[first]
    words = offers.strings("instance_type", rows)
    plain = _plain(text)
    near = [place for place, word in enumerate(words) if plain in _plain(word)]
    near.sort(
        key=lambda place: (not _plain(words[place]).startswith(plain), _natural_key(words[place]))
    )
    kept = rows[near[:LIMIT]]
    columns = ("vcpus", "memory_gib")
    numbers = zip(*(offers.values(name)[kept].tolist() for name in columns), strict=True)
    clouds = offers.strings("cloud", kept)
    for word, cloud, (cpus, memory) in zip(
        offers.strings("instance_type", kept), clouds, numbers, strict=True
    ):
        yield Completion(
            word,
            _("{cloud}: {vcpus}, {memory:g} GiB").format(
                cloud=cloud, vcpus=format_vcpus(cpus), memory=memory
            ),
        )


def _of_rows(catalog: Catalog, rows: np.ndarray, name: str, note: str) -> Iterator[Completion]:
    """Return the distinct words of a column, each with another column's word in its first row."""
    __, first = np.unique(catalog.offers.values(name)[rows], return_index=True)
    chosen = rows[first]
    pairs = zip(
        catalog.offers.strings(name, chosen), catalog.offers.strings(note, chosen), strict=True
    )
    yield from (Completion(word, beside) for word, beside in sorted(pairs) if word)


_BY_CATALOG: dict[str, Callable[[Catalog, str, Resources], Iterator[Completion]]] = {
    "cloud": _clouds,
    "gpu": _gpus,
    "instance-type": _types,
    "region": _regions,
    "zone": _zones,
}
