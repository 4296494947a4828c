"""Refresh: fetch, compare, refuse implausible changes, and replace in one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.clouds.facts import BUILT_IN
from jupyter_sky.base.clouds.register import installed_names
from jupyter_sky.base.errors import SkyError, SkyRefreshError, SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices import coverage
from jupyter_sky.clouds.prices.comparison import OfferDiff, compare
from jupyter_sky.clouds.prices.fetcher import TRY_LATER_HINT, Fetcher
from jupyter_sky.clouds.prices.page_cache import PageCache
from jupyter_sky.clouds.prices.progress import RefreshProgress
from jupyter_sky.clouds.prices.source import KnownOffers, PriceSource, SourceData

if TYPE_CHECKING:
    import pyarrow as pa

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
    from jupyter_sky.clouds.prices.provider import ProviderPrices

    found: dict[str, PriceSource] = {}
    for name, facts in sorted(BUILT_IN.items()):
        if facts.price_source:
            module, __, kind = facts.price_source.partition(":")
            found[name] = getattr(import_module(f".{module}", __package__), kind)()
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
