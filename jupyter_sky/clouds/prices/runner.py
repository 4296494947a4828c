"""Refresh: fetch, compare, refuse implausible changes, and replace in one step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from jupyter_sky.base.clouds.index import BUILT_IN
from jupyter_sky.base.clouds.register import find_provider, installed_names
from jupyter_sky.base.errors import SkyError, SkyRefreshError, SkyUsageError, suggest
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.lazy_names import load_class
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices import coverage, http
from jupyter_sky.clouds.prices.entries import Row, make_offer, make_table
from jupyter_sky.clouds.prices.fetcher import TRY_LATER_HINT, Fetcher, Recovery, today
from jupyter_sky.clouds.prices.page_cache import Page, PageCache
from jupyter_sky.clouds.prices.progress import RefreshProgress
from jupyter_sky.clouds.prices.source import KnownOffers, PriceSource, SourceData

if TYPE_CHECKING:
    import pyarrow as pa

    from jupyter_sky.clouds.provider import Provider


_MIN_SHARE_LEFT = 0.7  # of the offers before; fewer and something has gone wrong
_MAX_SHARE_FAR = 0.3  # of the offers may cost thrice or a third of what they did

STATES = ("refreshed", "dry run", "not refreshed")


@dataclass(frozen=True, slots=True)
class RefreshOutcome:
    """Outcome of the refresh of one cloud.

    Attributes
    ----------
    cloud : str
    state : str
        ``refreshed``, ``dry run`` or ``not refreshed``.
    diff : Diff or None
        Changes against the catalog.
    rows : int
        Rows of offers that were fetched.
    skipped : mapping of str to int
        Entries that made no sense, by reason.
    resumed : int
        Pages that an earlier, interrupted run had fetched.
    notes : tuple of str
        What could not be had.
    error : SkyError or None
        Why it was not refreshed.
    """

    cloud: str
    state: str
    diff: OfferDiff | None = None
    rows: int = 0
    skipped: Mapping[str, int] | None = None
    resumed: int = 0
    notes: tuple[str, ...] = ()
    error: SkyError | None = None


def sources() -> dict[str, PriceSource]:
    """Return all sources by cloud, those of other packages last; no SDK is imported."""
    found: dict[str, PriceSource] = {}
    for name, facts in sorted(BUILT_IN.items()):
        if facts.price_source:
            found[name] = load_class(f"{__package__}.{facts.price_source}")()
    return found | {name: ProviderPrices(name) for name in installed_names()}


def refresh(
    clouds: Iterable[str] = (),
    *,
    dry_run: bool = False,
    force: bool = False,
    directory: Path | str | None = None,
    base: Path | None = None,
    known: Mapping[str, PriceSource] | None = None,
    quiet: bool = False,
    pause: float = 1.0,
) -> list[RefreshOutcome]:
    """Fetch the offers of clouds and replace those in the catalog.

    A cloud that fails stays as it is; the others go on. What was fetched of it is kept for some
    hours and the next refresh continues there.

    Parameters
    ----------
    clouds
        Names; without any, all that can be reached from here.
    dry_run
        Compare only.
    force
        Replace even when far fewer offers came back than there were.
    directory
        The data directory, `Sky.data_dir` unless given.
    base
        Directory of the catalog that ships, unless it is the package's own.
    known
        Sources by name, all unless given.
    quiet
        Show no progress.
    pause
        Seconds before a damaged page is asked for again.

    Returns
    -------
    list of RefreshOutcome
        One for each cloud, also for those that were not refreshed.

    Raises
    ------
    SkyUsageError
        For a name that is none of a source.

    Examples
    --------
    >>> refresh(["aws"], dry_run=True)  # doctest: +SKIP
    """
    from jupyter_sky.base.settings import paths

    all_sources = sources() if known is None else dict(known)
    names = list(dict.fromkeys(clouds)) or list(all_sources)
    for name in names:
        if name not in all_sources:
            raise SkyUsageError(
                _("catalog refresh {name}: no source of that name").format(name=name),
                hint=suggest(name, all_sources),
            )
    data = Path(directory) if directory is not None else paths.data_dir()
    outcomes = []
    for name in names:
        source = all_sources[name]
        try:
            source.check()
            with RefreshProgress(name, quiet=quiet) as progress:
                cache = PageCache(data / "catalog-fetched" / name)
                fetch = Fetcher(cache, source.explain, progress, pause=pause)
                outcome = _refresh_cloud(source, fetch, (data / "catalog", base), dry_run, force)
        except SkyError as error:
            outcome = RefreshOutcome(name, STATES[2], error=error)
        else:
            if outcome.state == STATES[0]:
                cache.clear()
        outcomes.append(outcome)
    return outcomes


def _refresh_cloud(
    source: PriceSource,
    fetch: Fetcher,
    folders: tuple[Path, Path | None],
    dry_run: bool,
    force: bool,
) -> RefreshOutcome:
    from jupyter_sky.knowledge.catalog import files

    folder, __ = folders
    known = KnownOffers(
        *(coverage.read_current(*folders, source.cloud, name) for name in ("offers", "egress"))
    )
    found = source.fetch(fetch, known)
    mine = _of_kinds(known.offers, source.kinds)
    diff = compare(mine, found.tables["offers"])
    outcome = RefreshOutcome(
        source.cloud,
        STATES[1] if dry_run else STATES[0],
        diff,
        found.tables["offers"].num_rows,
        dict(fetch.skipped),
        fetch.resumed,
        found.notes,
    )
    if not dry_run:
        _check_plausible(source.cloud, diff, force)
        meta = files.PartMetadata(source.cloud, (source.cloud,), sources=found.sources)
        try:
            files.write(folder, _complete_tables(found, known, source, folder), meta)
        except OSError as error:
            raise SkyRefreshError(
                _(
                    "{cloud}: {folder} cannot be written ({strerror}); the catalog is as it was"
                ).format(cloud=source.cloud, folder=folder, strerror=error.strerror or error),
                hint=TRY_LATER_HINT,
            ) from error
    return outcome


def _check_plausible(cloud: str, diff: OfferDiff, force: bool) -> None:
    """Raise SkyRefreshError for prices that cannot be right."""
    kept = "the catalog is as it was"
    if not diff.after:
        raise SkyRefreshError(
            _("{cloud}: not one offer with a price came back; {kept}").format(
                cloud=cloud, kept=kept
            )
        )
    if force:
        return
    hint = f"if that is right: jupyter sky catalog refresh {cloud} --force"
    if diff.after < _MIN_SHARE_LEFT * diff.before:
        raise SkyRefreshError(
            _("{cloud}: {after} priced offers came back where there were {before}; {kept}").format(
                cloud=cloud, after=diff.after, before=diff.before, kept=kept
            ),
            hint=hint,
        )
    if diff.far > _MAX_SHARE_FAR * diff.common:
        raise SkyRefreshError(
            _(
                "{cloud}: {far} of {common} prices are now more than three times or "
                "less than a third of what they were; {kept}"
            ).format(cloud=cloud, far=diff.far, common=diff.common, kept=kept),
            hint=hint,
        )


def _of_kinds(offers: pa.Table, kinds: frozenset[str], *, others: bool = False) -> pa.Table:
    import pyarrow as pa

    wanted = [(kind in kinds) is not others for kind in offers["kind"].to_pylist()]
    return offers.filter(pa.array(wanted, pa.bool_()))


def _complete_tables(
    found: SourceData, known: KnownOffers, source: PriceSource, folder: Path
) -> dict[str, pa.Table]:
    """Return tables to write: fetched rows, and present rows that the source does not list."""
    tables = dict(found.tables)
    rest = _of_kinds(known.offers, source.kinds, others=True)
    tables["offers"] = _join_tables([tables["offers"], rest])
    if "egress" in tables:
        tables["egress"] = _join_tables(
            [tables["egress"], _unlisted_egress(known.egress, tables["egress"])]
        )
    # Only of an earlier refresh: a table that ships must be free to be renewed by an upgrade.
    for meta in coverage.read_refreshed(folder):
        for name in meta.tables if meta.part == source.cloud else ():
            rows = None if name in tables else coverage.read_if_valid(folder, meta, name)
            if rows is not None:
                tables[name] = rows
    return tables


def _unlisted_egress(old: pa.Table, new: pa.Table) -> pa.Table:
    """Return present rows of egress for routes that the new table does not have."""
    import pyarrow as pa

    ways = ("source_region", "destination")
    seen = set(zip(*(new[name].to_pylist() for name in ways), strict=True))
    before = zip(*(old[name].to_pylist() for name in ways), strict=True)
    return old.filter(pa.array([way not in seen for way in before], pa.bool_()))


def _join_tables(tables: list[pa.Table]) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


# -- Changes by a refresh: new offers, removed offers and changed prices --------------------------

_TOLERANCE = 1e-6  # of a price: what rounding alone may change
_SHOWN = 5

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A price before and after."""

    region: str
    instance_type: str
    spot: bool
    before: float
    after: float

    @property
    def percent(self) -> float:
        """Change in percent of the price before."""
        return (self.after / self.before - 1) * 100

    def __str__(self) -> str:
        what = f"{self.instance_type}{' spot' if self.spot else ''} in {self.region}"
        return f"{what}: ${self.before:.4g} → ${self.after:.4g} ({self.percent:+.0f} %)"


@dataclass(frozen=True, slots=True)
class OfferDiff:
    """Differences between two lists of offers of one cloud.

    Offers are counted once for each instance type and region, whatever the number of zones, and
    only with an on-demand price.

    Attributes
    ----------
    before, after : int
        Priced offers of the two.
    new, gone : int
        Offers that only one of them has.
    repriced : int
        Offers whose on-demand price is another.
    spot_repriced : int
        Offers whose lowest spot price is another.
    far : int
        Offers whose on-demand price is more than three times, or less than a third, of what it was.
    largest : tuple of Change
        The changes that matter most: by percentage, on demand first.

    Examples
    --------
    >>> diff = compare(old, new)  # doctest: +SKIP
    >>> diff.new, diff.gone, diff.repriced  # doctest: +SKIP
    (12, 0, 3)
    """

    before: int
    after: int
    new: int
    gone: int
    repriced: int
    spot_repriced: int
    far: int
    largest: tuple[PriceChange, ...]

    @property
    def common(self) -> int:
        """Offers that both have."""
        return self.before - self.gone


def compare(old: pa.Table, new: pa.Table) -> OfferDiff:
    """Compare two tables of offers.

    Parameters
    ----------
    old, new
        Rows of one cloud, in the schema of the catalog.
    """
    before, after = _prices(old, "on_demand_usd_h"), _prices(new, "on_demand_usd_h")
    changes = list(_changes(before, after, spot=False))
    spot = list(_changes(_prices(old, "spot_usd_h"), _prices(new, "spot_usd_h"), spot=True))
    ranked = sorted(changes, key=_weight) or sorted(spot, key=_weight)
    return OfferDiff(
        before=len(before),
        after=len(after),
        new=len(after.keys() - before.keys()),
        gone=len(before.keys() - after.keys()),
        repriced=len(changes),
        spot_repriced=len(spot),
        far=sum(not 1 / 3 <= change.after / change.before <= 3 for change in changes),
        largest=tuple(ranked[:_SHOWN]),
    )


def _weight(change: PriceChange) -> tuple[float, str, str]:
    return -abs(change.percent), change.region, change.instance_type


def _prices(rows: pa.Table, column: str) -> dict[Key, float]:
    """Return the lowest price of each instance type in each region, without local zones."""
    found: dict[Key, float] = {}
    columns = [rows.column(name).to_pylist() for name in ("region", "instance_type", column)]
    for region, machine, price in zip(*columns, strict=True):
        if price is not None and price > 0:
            found[region, machine] = min(price, found.get((region, machine), price))
    return found


def _changes(
    before: Mapping[Key, float], after: Mapping[Key, float], *, spot: bool
) -> Iterator[PriceChange]:
    for key, price in after.items():
        old = before.get(key)
        if old is not None and abs(price - old) > _TOLERANCE * old:
            yield PriceChange(*key, spot, old, price)


# -- Prices of a cloud that another package adds: the offers of its `Provider` --------------------


@dataclass(frozen=True)
class ProviderPrices:
    """Prices of a cloud, by the operation ``offers`` of its provider.

    Parameters
    ----------
    cloud
        Name of the cloud, which another package adds.

    Examples
    --------
    >>> ProviderPrices("nimbus").cloud
    'nimbus'
    """

    cloud: str

    kinds = frozenset({"vm"})

    def _provider(self) -> Provider:
        return cast("type[Provider]", find_provider(self.cloud))()

    def check(self) -> None:
        """Raise when there are no credentials."""
        provider = self._provider()
        if not provider.configured():
            raise SkyRefreshError(
                _("{cloud}: no credentials were found").format(cloud=self.cloud),
                hint=provider.login or None,
            )

    def fetch(self, fetch: Fetcher, known: KnownOffers) -> SourceData:
        """Read the offers; the same machine on demand and spot is one row."""

        def get(__: str | None) -> Page:
            return Page([asdict(offer) for offer in self._provider().offers()], None, {})

        offers = fetch.pages("offers", get)
        tables = {
            "offers": make_table("offers", _rows(offers)),
            "regions": make_table("regions", _regions(offers)),
        }
        return SourceData(tables, {self.cloud: today()})

    def explain(self, error: Exception) -> Recovery | SkyError:
        """Classify an error of the provider."""
        refusal = self._provider().explain(error)
        if refusal is None:
            return http.explain_failure(error, self.cloud)
        return SkyRefreshError(
            f"{self.cloud}: {refusal.message}", hint=refusal.fix or TRY_LATER_HINT
        )


def _rows(offers: Iterable[JsonObject]) -> Iterator[Row]:
    """Yield rows of the catalog, each with the prices of both markets."""
    machines: dict[tuple[str, str, str], JsonObject] = {}
    for offer in offers:
        key = (offer["region"], offer["zone"] or "", offer["instance_type"])
        row = machines.setdefault(key, {"zone": key[1]})
        market = "spot" if offer["spot"] else "on_demand"
        row[f"{market}_usd_h"] = offer["price"]
        row["spot_date" if offer["spot"] else "price_date"] = offer["date"] or today()
        row |= {name: offer[name] for name in _SAME}
        row |= {column: offer[name] or None for name, column in _RENAMED.items()}
        row["accelerator"] = offer["gpu"] or ""
    return (make_offer(**row) for row in machines.values())


_SAME = ("cloud", "region", "instance_type", "arch", "cpu_vendor", "source", "intel_sgx")
_RENAMED = {
    "vcpus": "vcpus",
    "memory": "memory_gib",
    "gpu_count": "accelerator_count",
    "gpu_memory": "accelerator_memory_gib",
}
"""Columns of the catalog by fields of an offer, where 0 stands for not known."""


def _regions(offers: Iterable[JsonObject]) -> list[Row]:
    """Return rows of the regions whose country an offer names."""
    facts = ("cloud", "region", "country", "jurisdiction")
    named = {offer["region"]: offer for offer in offers if offer["country"]}
    return [{name: offer[name] for name in facts} for offer in named.values()]
