"""Table of offers: sortable in a notebook, text elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, overload

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.tables import CAPTION, LINE, NO_MATHJAX_CLASSES, TABLE, Table, make_scrollable
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.clouds.launches.launch_support import is_launchable
from jupyter_sky.knowledge.catalog.price_origin import PriceOrigin, describe_origin, format_date
from jupyter_sky.knowledge.catalog.regions import STALE_DAYS, days_since

if TYPE_CHECKING:
    from pandas import DataFrame

    from jupyter_sky.knowledge.catalog import Selection

_CLIP = 30  # characters that a line has room for


@dataclass(frozen=True, slots=True)
class OfferLine:
    """Offer with the zones that sell it at the same price."""

    offer: Offer
    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Column:
    """Column of the table: name, text of a cell, number to sort by, and its tooltip."""

    name: str
    text: Any
    value: Any = None
    tooltip: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """Offers of a query, cheapest first. Iteration gives each `Offer`.

    Attributes
    ----------
    selection : Selection
        The offers as columns of the catalog.
    asked : str
        The query in the words of the command line.
    limit : int
        Largest number of lines to show.
    problems : tuple of str
        Errors in the files of prices.

    Examples
    --------
    >>> sky.offers("A100:8", spot=True, region="eu").head(3)  # doctest: +SKIP
    """

    selection: Selection
    asked: str = ""
    limit: int = 20
    problems: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.selection)

    def __iter__(self) -> Iterator[Offer]:
        return iter(self.selection)

    @overload
    def __getitem__(self, key: int) -> Offer: ...

    @overload
    def __getitem__(self, key: slice) -> Offers: ...

    def __getitem__(self, key: int | slice) -> Offer | Offers:
        if isinstance(key, slice):
            return replace(self, selection=self.selection[key])
        if not -len(self) <= key < len(self):
            raise IndexError(f"offer {key} of {len(self)}")
        position = key % len(self)
        return self.selection[position : position + 1].offers()[0]

    def head(self, count: int = 5) -> Offers:
        """Return the first offers."""
        return replace(self, selection=self.selection.head(count))

    def to_pandas(self) -> DataFrame:
        """Return all offers as a DataFrame with every column of the catalog."""
        return self.selection.to_pandas()

    # -- display -----------------------------------------------------------------------------

    @property
    def line_count(self) -> int:
        """Number of lines of all offers; zones with the same offer share a line."""
        return self.selection.count_without_zones()

    def lines(self) -> list[OfferLine]:
        """Return the first lines; zones with the same offer share a line."""
        found: dict[tuple, tuple[Offer, list[str]]] = {}
        for offer in self.selection.offers(self.limit * 12):
            key = (offer.cloud, offer.region, offer.instance_type, offer.spot, offer.price)
            __, zones = found.setdefault((*key, offer.service), (offer, []))
            if offer.zone:
                zones.append(offer.zone)
            if len(found) > self.limit:
                break
        return [
            OfferLine(offer, tuple(zones)) for offer, zones in list(found.values())[: self.limit]
        ]

    def notes(self, lines: Sequence[OfferLine]) -> list[str]:
        """Return remarks on the prices: their age, and offers that are not shown."""
        notes = []
        more = self.line_count - len(lines)
        if more > 0:
            notes.append(_("{count:,} more offers: to_pandas() has them all").format(count=more))
        age = self.selection.age() if len(self) else None
        if age is not None and age > STALE_DAYS:
            oldest = min(day for day in self.selection.dates() if days_since(day) == age)
            notes.append(
                _("prices go back to {day}; newer ones: jupyter sky catalog refresh").format(
                    day=format_date(oldest)
                )
            )
        if any(not line.offer.date for line in lines):
            notes.append(_("prices without a date are of unknown age"))
        if self.selection.flagged:
            notes.append(
                _("{flagged} spot offers that cost more than on-demand are left out").format(
                    flagged=self.selection.flagged
                )
            )
        notes += sorted({line.offer.note for line in lines if line.offer.note})
        return [*notes, *self.problems]

    def _notes_below(self, lines: Sequence[OfferLine]) -> list[str]:
        """Return the notes below a table of all lines, which are not grouped by their launch."""
        others = sorted({line.offer.cloud for line in lines if not is_launchable(line.offer.cloud)})
        text = _("cannot be launched from here yet: {clouds}").format(clouds=", ".join(others))
        return [*([text] if others else []), *self.notes(lines)]

    def table(self) -> Table:
        """Return the lines as a plain table."""
        lines = self.lines()
        columns, count = _columns(lines), self.line_count
        rows = tuple(tuple(_clipped(c.text(line)) for c in columns) for line in lines)
        title = ngettext("{count:,} offer", "{count:,} offers", count).format(count=count)
        if len(lines) < count:
            title = _("{shown} of {title}").format(shown=len(lines), title=title)
        if self.asked:
            title = _("{title} for {request}").format(title=title, request=self.asked)
        names = tuple(column.name for column in columns)
        return Table(
            title, names, rows, "\n".join(self._notes_below(lines)), _("nothing on sale meets this")
        )

    def __str__(self) -> str:
        return str(self.table())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        lines = self.lines()
        table = self.table()
        if not lines:
            return table._repr_html_()
        columns = _columns(lines)
        numeric = [column.value is not None for column in columns]
        styles = [
            f"padding: 2px 8px; text-align: {'right' if right else 'left'}; background: none"
            "; white-space: nowrap"
            for column, right in zip(columns, numeric, strict=True)
        ]
        head = "".join(
            f'<th scope="col" style="{style}; border-bottom: {LINE}">{escape(column.name)}</th>'
            for column, style in zip(columns, styles, strict=True)
        )
        body = "".join(_row(line, columns, styles) for line in lines)
        notes = "".join(
            f'<div class="{NO_MATHJAX_CLASSES}" '
            f'style="{TABLE}; padding: 2px 8px">{escape(note)}</div>'
            for note in self._notes_below(lines)
        )
        content = (
            f'<table class="{NO_MATHJAX_CLASSES} jupyter-sky-offers" data-sortable="no" '
            f'data-sort-by="{escape(_("sort by %1"))}" style="{TABLE}">'
            f'<thead><tr style="background: none">{head}</tr></thead><tbody>{body}</tbody></table>'
        )
        return (
            f'<style>{_STYLE}</style><div class="{NO_MATHJAX_CLASSES}" '
            f'style="{TABLE}; {CAPTION}">{escape(table.title)}</div>'
            f"{make_scrollable(content, _('offers'))}"
            f"{notes}<script>{_script()}</script>"
        )


_STYLE = ".jupyter-sky-offers th[data-mark]::after { content: attr(data-mark); }"


@cache
def _script() -> str:
    from importlib.resources import files

    return files("jupyter_sky.interfaces.widgets").joinpath("offers.js").read_text(encoding="utf-8")


def _columns(lines: Sequence[OfferLine]) -> list[_Column]:
    """Return the columns that are not empty in these lines, nor repeat another."""
    several = any(line.offer.gpu_count > 1 for line in lines)
    columns = [
        _Column("cloud", lambda line: line.offer.cloud),
        _Column("region", lambda line: line.offer.region),
        _Column(_("instance type"), lambda line: line.offer.instance_type),
        # on a narrow page the last columns are beyond the edge: never the price
        _Column("USD/h", lambda line: _usd(line.offer.price), lambda line: line.offer.price),
        _Column(
            _("USD/h per GPU"),
            lambda line: _usd(line.offer.gpu_price, bool(line.offer.gpu)) if several else "",
            lambda line: line.offer.gpu_price,
        ),
        _Column("market", lambda line: "spot" if line.offer.spot else "on-demand"),
        _Column(
            _("price from"),
            lambda line: _origin(line).short,
            tooltip=lambda line: _origin(line).tooltip,
        ),
        _Column(_("days old"), _days, _days_number),
        _Column("GPUs", lambda line: _gpus(line.offer)),
        _Column("vCPUs", lambda line: _plain(line.offer.vcpus), lambda line: line.offer.vcpus),
        _Column("GiB", lambda line: _plain(line.offer.memory), lambda line: line.offer.memory),
        _Column("zones", _zones, tooltip=lambda line: ", ".join(line.zones)),
        _Column("country", lambda line: line.offer.country),
        _Column("service", lambda line: " ".join(line.offer.packages)),
    ]
    return [column for column in columns if any(column.text(line) for line in lines)]


def _row(line: OfferLine, columns: Sequence[_Column], styles: Sequence[str]) -> str:
    cells = []
    for column, style in zip(columns, styles, strict=True):
        text = column.text(line)
        value = column.value(line) if column.value else None
        number = f' data-value="{value:.12g}"' if value else ""
        short = _clipped(text)
        said = column.tooltip(line) if column.tooltip else ""
        said = said or (text if short != text else "")
        whole = f' title="{escape(said)}"' if said else ""
        cells.append(f'<td style="{style}"{number}{whole}>{escape(short)}</td>')
    return f'<tr style="background: none">{"".join(cells)}</tr>'


def _days_number(line: OfferLine) -> int | None:
    return days_since(line.offer.date)


def _days(line: OfferLine) -> str:
    days = _days_number(line)
    return "" if days is None else str(days)


def _origin(line: OfferLine) -> PriceOrigin:
    return describe_origin(line.offer.source, line.offer.date)


def _zones(line: OfferLine) -> str:
    """Return the zones without their region, which stands beside them."""
    region = line.offer.region
    return ", ".join(
        zone[len(region) :].lstrip("-") if zone.startswith(region) else zone for zone in line.zones
    )


def _gpus(offer: Offer) -> str:
    if not offer.gpu:
        return ""
    return f"{offer.gpu}:{offer.gpu_count:g}"


def _plain(value: float) -> str:
    return f"{value:g}" if value else ""


def _usd(price: float | None, asked: bool = True) -> str:
    if price is None:
        return "unknown" if asked else ""
    return f"{price:.4f}"


def _clipped(text: str) -> str:
    return text if len(text) <= _CLIP else text[: _CLIP - 1] + "…"
