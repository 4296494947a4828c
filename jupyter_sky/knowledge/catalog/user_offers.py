"""The user's own offers and discounts, from a small CSV or TOML file.

A mistake in a line leaves that line out and is told, with its place, wherever prices are shown;
the rest of the file and of the catalog stay in use. `check` raises for it instead.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jupyter_sky.base.clouds.register import is_known, known_names
from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.geography import jurisdiction_of, parse_arch, parse_vendor
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog import schema
from jupyter_sky.knowledge.catalog.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "yours"

_NUMBERS = {
    "vcpus": "vcpus",
    "memory": "memory_gib",
    "gpu_count": "accelerator_count",
    "gpu_memory": "accelerator_memory_gib",
    "price": "on_demand_usd_h",
    "spot_price": "spot_usd_h",
}
_OFFER = (*"cloud region zone instance_type gpu arch cpu_vendor country date".split(), *_NUMBERS)
_DISCOUNT = ("cloud", "region", "instance_type", "factor", "market")
_MARKETS = ("on_demand", "spot", "both")


@dataclass(frozen=True, slots=True)
class Discount:
    """A share of the list price, for machines whose names match patterns.

    Attributes
    ----------
    cloud, region, instance_type : str
        Patterns with ``*``.
    factor : float
        Share of the list price that is paid.
    market : str
        ``on_demand``, ``spot`` or ``both``.
    """

    cloud: str
    factor: float
    region: str = "*"
    instance_type: str = "*"
    market: str = "on_demand"


@dataclass(frozen=True, slots=True)
class UserOffers:
    """Offers and discounts of the user's files.

    Attributes
    ----------
    rows : tuple of dict
        Rows of the offers' table.
    places : tuple of dict
        Rows of the regions' table, for regions that the file gives a country.
    discounts : tuple of Discount
        The first that matches a machine counts.
    problems : tuple of str
        Lines that are left out, and why.
    """

    rows: tuple[dict[str, Any], ...] = ()
    places: tuple[dict[str, Any], ...] = ()
    discounts: tuple[Discount, ...] = ()
    problems: tuple[str, ...] = ()

    def __add__(self, other: UserOffers) -> UserOffers:
        return UserOffers(
            self.rows + other.rows,
            self.places + other.places,
            self.discounts + other.discounts,
            self.problems + other.problems,
        )

    def apply(self, name: str, table: pa.Table) -> pa.Table:
        """Return a table of the catalog with these offers in it."""
        if name == "offers":
            return self._with_rows(name, _discounted(table, self.discounts), self.rows)
        if name == "regions":
            return self._with_rows(name, table, self._new_places(table))
        return table

    def _new_places(self, table: pa.Table) -> list[dict[str, Any]]:
        """Return regions that the catalog lacks; of its own it knows more than a country."""
        there = Columns.of_arrow("regions", table)
        everything = np.arange(len(there))
        names = (there.strings(key, everything) for key in schema.KEYS["regions"])
        known = set(zip(*names, strict=True))
        new = {(place["cloud"], place["region"]): place for place in reversed(self.places)}
        return [place for key, place in new.items() if key not in known]

    def _with_rows(self, name: str, table: pa.Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
        """Replace rows of a table by the user's rows of the same key."""
        import pyarrow as pa

        if not rows:
            return table
        mine = schema.conform(name, pa.Table.from_pylist(list(rows)))
        keys = {tuple(row.get(key, "") for key in schema.KEYS[name]) for row in rows}
        there = Columns.of_arrow(name, table)
        everything = np.arange(len(there))
        columns = (there.strings(key, everything) for key in schema.KEYS[name])
        kept = pa.array([key not in keys for key in zip(*columns, strict=True)], pa.bool_())
        joined = pa.concat_tables([table.filter(kept), mine])
        return joined.unify_dictionaries().combine_chunks()


def _discounted(table: pa.Table, discounts: Sequence[Discount]) -> pa.Table:
    import pyarrow as pa

    if not discounts:
        return table
    there = Columns.of_arrow("offers", table)
    prices = {name: there.values(name).copy() for name in ("on_demand_usd_h", "spot_usd_h")}
    words, codes = list(there.categories("source")), there.values("source").astype(np.int32)
    free = np.ones(len(there), bool)
    for discount in discounts:
        chosen = free.copy()
        for column in ("cloud", "region", "instance_type"):
            pattern = getattr(discount, column)
            chosen &= there.where(column, lambda word, p=pattern: fnmatchcase(word, p))
        for market, column in (("on_demand", "on_demand_usd_h"), ("spot", "spot_usd_h")):
            if discount.market in (market, "both"):
                prices[column][chosen] *= discount.factor
        free &= ~chosen
        for code in np.unique(codes[chosen]).tolist():
            words.append(f"{SOURCE}: {discount.factor:g} of {words[code]}")
            codes[chosen & (codes == code)] = len(words) - 1
    source = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int16()), pa.array(words))
    above = prices["spot_usd_h"] > prices["on_demand_usd_h"]
    changed = {
        **{name: pa.array(values, from_pandas=True) for name, values in prices.items()},
        "source": source,
        "spot_above_on_demand": pa.array(above),
    }
    for name, array in changed.items():
        position = table.schema.get_field_index(name)
        table = table.set_column(position, table.schema.field(position), array)
    return table


# -- reading -------------------------------------------------------------------------------


def read_user_offers(path: Path) -> UserOffers:
    """Read a file; lines with mistakes are among its `problems`.

    Parameters
    ----------
    path
        A file of CSV or TOML, see the README of the catalog.
    """
    rows, places, discounts, problems = [], [], [], []
    try:
        for where, kind, record in _records(path):
            try:
                if kind == "discounts":
                    discounts.append(_discount(record))
                else:
                    row, place = _offer(record)
                    rows.append(row)
                    places += place
            except SkyUsageError as error:
                problems.append(f"{where}: {error.message}" + _hint(error))
    except (OSError, UnicodeDecodeError, SkyUsageError) as error:
        message = str(error)
        problems.append(message if str(path) in message else f"{path}: {message}")
    return UserOffers(tuple(rows), tuple(places), tuple(discounts), tuple(problems))


def check_file(path: Path) -> UserOffers:
    """Parse the text of a file.

    Raises
    ------
    SkyUsageError
        For any mistake; names the file and the line.
    """
    found = read_user_offers(path)
    if found.problems:
        raise SkyUsageError(
            "\n".join(found.problems), hint=_("these lines are left out; the others are in use")
        )
    return found


def _hint(error: SkyUsageError) -> str:
    return f" ({error.hint})" if error.hint else ""


_Record = tuple[str, str, dict[str, Any]]


def _records(path: Path) -> Iterator[_Record]:
    """Yield place, kind and non-empty fields of each record."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".toml":
        yield from _toml(path, text)
    elif path.suffix.lower() == ".csv":
        yield from _csv(path, text)
    else:
        raise SkyUsageError(
            _("{path}: neither .csv nor .toml").format(path=path), hint=_("name it offers.csv")
        )


def _csv(path: Path, text: str) -> Iterator[_Record]:
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    for name in reader.fieldnames or ():
        if name not in (*_OFFER, *_DISCOUNT):
            hint = suggest(name, (*_OFFER, *_DISCOUNT))
            raise SkyUsageError(
                _("{path}, line 1: there is no column {name!r}").format(path=path, name=name),
                hint=hint,
            )
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        record = {key: (value or "").strip() for key, value in row.items() if key}
        if None in row:
            record["more"] = row[None]
        record = {key: value for key, value in record.items() if value}
        if not record or str(record.get("cloud", "")).startswith("#"):
            continue
        yield where, "discounts" if "factor" in record else "offers", record


def _toml(path: Path, text: str) -> Iterator[_Record]:
    import tomllib

    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"{path}, line {line[1]}" if line else str(path)
        raise SkyUsageError(f"{where}: {error}") from None
    headers = [
        (number, match[1])
        for number, line in enumerate(text.splitlines(), start=1)
        if (match := re.match(r"\s*\[\[\s*([\w-]+)\s*\]\]", line))
    ]
    for kind, records in tables.items():
        lines = [number for number, name in headers if name == kind]
        if kind not in ("offers", "discounts") or not isinstance(records, list):
            hint = suggest(kind, ("offers", "discounts"))
            raise SkyUsageError(
                _("{path}: {kind} is neither [[offers]] nor [[discounts]]").format(
                    path=path, kind=kind
                ),
                hint=hint,
            )
        for position, record in enumerate(records):
            line = lines[position] if position < len(lines) else 1
            yield f"{path}, line {line}", kind, record


def _cloud(record: dict[str, Any]) -> str:
    cloud = str(record.get("cloud", ""))
    if not is_known(cloud):
        problem = f"cloud {cloud!r} is not known" if cloud else "the cloud is missing"
        raise SkyUsageError(
            problem, hint=suggest(cloud, known_names()) + _("; ssh is for machines of your own")
        )
    return cloud


def _number(record: dict[str, Any], key: str) -> float | None:
    if key not in record:
        return None
    text = str(record[key]).strip().removeprefix("$")
    try:
        value = float(text)
    except ValueError:
        raise SkyUsageError(_("{key} = {text}: not a number").format(key=key, text=text)) from None
    if not 0 <= value < float("inf"):
        raise SkyUsageError(_("{key} = {text}: not a number from 0").format(key=key, text=text))
    return value


def _known_keys(record: dict[str, Any], known: Sequence[str]) -> None:
    for key in record:
        if key == "more":
            raise SkyUsageError(_("more fields than columns"))
        if key not in known:
            raise SkyUsageError(
                _("{key!r} is not known here").format(key=key), hint=suggest(key, known)
            )


def _discount(record: dict[str, Any]) -> Discount:
    _known_keys(record, _DISCOUNT)
    factor = _number(record, "factor")
    if not factor or factor > 10:
        raise SkyUsageError(
            _("factor = {record}: not a share of the list price").format(
                record=record.get("factor")
            ),
            hint=_("0.9 is ten percent off"),
        )
    market = str(record.get("market", "on_demand"))
    if market not in _MARKETS:
        raise SkyUsageError(
            _("market {market!r} is not known").format(market=market),
            hint=suggest(market, _MARKETS),
        )
    region, kind = (str(record.get(key, "*")) for key in ("region", "instance_type"))
    return Discount(_cloud(record), factor, region, kind, market)


def _offer(record: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a row of the offers, and one of the regions when a country is given."""
    _known_keys(record, _OFFER)
    cloud, region = _cloud(record), str(record.get("region", ""))
    if not record.get("instance_type"):
        raise SkyUsageError(
            _("the instance_type is missing"), hint=_("any name by which you know it")
        )
    row: dict[str, Any] = {
        "cloud": cloud,
        "region": region,
        "zone": str(record.get("zone", "")),
        "instance_type": str(record["instance_type"]),
        "kind": "vm",
        "source": SOURCE,
        "price_date": _date(record),
        "spot_date": _date(record),
        "arch": parse_arch(str(record.get("arch", "x86_64")), "arch"),
    }
    if "cpu_vendor" in record:
        row["cpu_vendor"] = parse_vendor(str(record["cpu_vendor"]), "cpu_vendor")
    row |= {column: _number(record, key) for key, column in _NUMBERS.items()}
    if "gpu" in record:
        model = accelerators.accelerator(str(record["gpu"]))
        row["accelerator"] = model.name
        row["accelerator_count"] = row["accelerator_count"] or 1.0
        row["accelerator_memory_gib"] = row["accelerator_memory_gib"] or model.memory
    on_demand, spot = row["on_demand_usd_h"], row["spot_usd_h"]
    row["spot_above_on_demand"] = None not in (on_demand, spot) and spot > on_demand
    if "country" not in record:
        return row, []
    country = str(record["country"]).upper()
    if not re.fullmatch("[A-Z]{2}", country):
        raise SkyUsageError(
            _("country {country!r}: not two letters").format(country=country), hint=_("such as DE")
        )
    law = jurisdiction_of(country)
    place = {"cloud": cloud, "region": region, "country": country, "jurisdiction": law}
    return row, [place]


def _date(record: dict[str, Any]) -> str:
    text = str(record.get("date", ""))
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise SkyUsageError(
            _("date {text!r}: not a day").format(text=text), hint=_("such as 2026-11-01")
        ) from None
