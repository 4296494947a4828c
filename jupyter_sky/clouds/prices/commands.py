"""Reports of the catalog and of its refresh, which the verb ``catalog`` shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices.page_cache import KEEP_HOURS
from jupyter_sky.clouds.prices.runner import STATES, RefreshOutcome, refresh, sources
from jupyter_sky.knowledge.catalog.regions import STALE_DAYS

if TYPE_CHECKING:
    from jupyter_sky.base.tables import Table


class RefreshReport:
    """Report of a refresh: a table of the clouds, and one of notes.

    Parameters
    ----------
    outcomes
        One for each cloud.

    Examples
    --------
    >>> print(RefreshReport([]))
    Refresh of the catalog
    nothing to do
    """

    def __init__(self, outcomes: Sequence[RefreshOutcome]) -> None:
        self.outcomes = tuple(outcomes)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are shown."""
        from jupyter_sky.base.tables import Table

        columns = ("cloud", "result", "offers", "new", "gone", "repriced", "spot repriced")
        clouds = Table(
            "Refresh of the catalog",
            (*columns, "skipped"),
            tuple(_row(outcome) for outcome in self.outcomes),
            empty="nothing to do",
        )
        details = tuple(
            (outcome.cloud, about, text)
            for outcome in self.outcomes
            for about, text in _details(outcome)
        )
        return (clouds, Table("", ("cloud", "about", "what"), details)) if details else (clouds,)

    def __str__(self) -> str:
        return "\n\n".join(str(table) for table in self.tables)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables)


def _row(outcome: RefreshOutcome) -> tuple[object, ...]:
    diff = outcome.diff
    if diff is None:
        return (outcome.cloud, outcome.state, *[""] * 6)
    skipped = sum((outcome.skipped or {}).values())
    counts = (diff.new, diff.gone, diff.repriced, diff.spot_repriced)
    return (outcome.cloud, outcome.state, diff.after, *counts, skipped)


def _details(outcome: RefreshOutcome) -> Iterable[tuple[str, str]]:
    if outcome.error is not None:
        yield "why", outcome.error.message
        if outcome.error.hint:
            yield "to do", outcome.error.hint
    if outcome.diff is not None:
        yield from (("price", str(change)) for change in outcome.diff.largest)
    for reason, count in sorted((outcome.skipped or {}).items(), key=lambda item: -item[1]):
        yield "skipped", f"{count} × {reason}"
    if outcome.resumed:
        yield "resumed", f"{outcome.resumed} pages were there from an earlier run"
    yield from (("note", note) for note in outcome.notes)


def refresh_and_report(
    clouds: Sequence[str] = (), *, dry_run: bool = False, force: bool = False
) -> RefreshReport:
    """Refresh clouds and report what has changed.

    Without names, every cloud is tried and those that cannot be read are reported. A cloud that
    was named and cannot be read is an error, after the others have been refreshed.

    Parameters
    ----------
    clouds
        Names of clouds; all unless given.
    dry_run
        Compare only.
    force
        Replace even when far fewer offers came back than there were.

    Raises
    ------
    SkyRefreshError
        When a named cloud, or every cloud, cannot be refreshed.

    Examples
    --------
    >>> refresh_and_report(["aws"], dry_run=True)  # doctest: +SKIP
    """
    try:
        outcomes = refresh(clouds, dry_run=dry_run, force=force)
    except KeyboardInterrupt:
        print(
            _(
                "interrupted: the catalog is as it was; pages are kept for {keep_hours:g} hours"
            ).format(keep_hours=KEEP_HOURS)
        )
        raise
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    report = RefreshReport(outcomes)
    if len(failed) == len(outcomes) == 1:
        raise failed[0]
    if failed and (clouds or len(failed) == len(outcomes)):
        print(report)
        raise _join_errors(outcomes, failed)
    return report


def _join_errors(outcomes: Sequence[RefreshOutcome], failed: Sequence[SkyError]) -> SkyError:
    names = ", ".join(outcome.cloud for outcome in outcomes if outcome.state == STATES[2])
    return SkyRefreshError(
        _("{failed_count} of {outcomes_count} clouds not refreshed: {names}").format(
            failed_count=len(failed), outcomes_count=len(outcomes), names=names
        )
    )


def show() -> Table:
    """Return the table of the catalog's offers by cloud, with their origin and age.

    Examples
    --------
    >>> show()  # doctest: +SKIP
    """
    from jupyter_sky.base.tables import Table
    from jupyter_sky.clouds.prices.coverage import find_coverage
    from jupyter_sky.knowledge.catalog import load
    from jupyter_sky.knowledge.catalog.loader import user_directory

    catalog = load()
    rows = find_coverage(catalog, user_directory())
    old = [row for row in rows if row.days is not None and row.days > STALE_DAYS]
    readable = [row.cloud for row in old if row.cloud in sources()]
    notes = list(catalog.problems)
    if old:
        names = ", ".join(row.cloud for row in old)
        notes.append(f"prices older than {STALE_DAYS} days: {names}")
    if readable:
        notes.append(f"fetch them anew: jupyter sky catalog refresh {' '.join(readable)}")
    columns = ("cloud", "offers", "priced", "regions", "types", "yours", "days old", "from")
    return Table(
        "Catalog",
        columns,
        tuple(
            (
                row.cloud,
                row.offers,
                row.priced,
                row.regions,
                row.types,
                row.yours,
                "unknown" if row.days is None else row.days,
                row.origin,
            )
            for row in rows
        ),
        note="; ".join(notes),
    )
