"""Validation of a price list: invalid entries are counted and left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests import accelerators

if TYPE_CHECKING:
    import pyarrow as pa


Cell = str | float | bool | None
Row = dict[str, Cell]
"""Row of a table of the catalog: values by column."""
Entry = TypeVar("Entry")
Record = TypeVar("Record")


class InvalidEntry(ValueError):
    """Invalid entry; the message is the reason under which it is counted."""


def read_entries(
    entries: Iterable[Entry], read: Callable[[Entry], Record | None]
) -> tuple[list[Record], dict[str, int]]:
    """Return the records of valid entries, and counts of the invalid ones by reason.

    Parameters
    ----------
    entries
        What the cloud has sent.
    read
        Turns one entry into a record, into None when it is not wanted, or raises `InvalidEntry`.

    Examples
    --------
    >>> read_entries([{"usd": "0.1"}, {"usd": "-1"}, {}], lambda entry: usd(entry["usd"]))
    ([0.1], {'negative price': 1, 'a field is missing': 1})
    """
    records, skipped = list[Record](), Counter[str]()
    for entry in entries:
        try:
            record = read(entry)
        except InvalidEntry as bad:
            skipped[str(bad)] += 1
        except (LookupError, AttributeError):
            skipped["a field is missing"] += 1
        except (TypeError, ValueError, ArithmeticError):
            skipped["a field has no sensible value"] += 1
        else:
            if record is not None:
                records.append(record)
    return records, dict(skipped)


def usd(value: Any, *, free: bool = False) -> float:
    """Parse a price: positive, or 0 where `free` allows it.

    Raises
    ------
    Bad
        For a price that is missing, not a number, negative or zero.
    """
    if value is None or value == "":
        raise InvalidEntry("no price")
    try:
        price = float(value)
    except (TypeError, ValueError):
        raise InvalidEntry("price is not a number") from None
    if not math.isfinite(price):
        raise InvalidEntry("price is not a number")
    if price < 0:
        raise InvalidEntry("negative price")
    if price == 0 and not free:
        raise InvalidEntry("no price")
    return price


def expect(value: Any, wanted: str | tuple[str, ...], reason: str) -> None:
    """Refuse an entry of another unit or currency than expected."""
    allowed = (wanted,) if isinstance(wanted, str) else wanted
    if value not in allowed:
        raise InvalidEntry(reason)


def canonical_accelerator(name: str, memory_gib: float | None = None) -> str:
    """Return the canonical name of an accelerator; memory tells variants apart.

    A name that the registry does not have is kept as the cloud writes it: a new machine must not
    vanish from the catalog because its accelerator is new.

    Examples
    --------
    >>> canonical_accelerator("Tesla V100", 32), canonical_accelerator("Marvel 9000")
    ('V100-32GB', 'Marvel 9000')
    """
    name = name.strip()
    try:
        found = accelerators.accelerator(name)
    except SkyUsageError:
        return name
    if memory_gib and not math.isclose(found.memory, memory_gib, rel_tol=0.15):
        try:
            return accelerators.canonical(f"{found.name}-{round(memory_gib)}GB")
        except SkyUsageError:
            return found.name
    return found.name


def nominal_memory(name: str, otherwise: float | None = None) -> float | None:
    """Return the nominal GiB of one accelerator; clouds report what the driver leaves of it.

    Examples
    --------
    >>> nominal_memory("A10G", 22.35), nominal_memory("Marvel 9000", 7.5)
    (24.0, 7.5)
    """
    try:
        return float(accelerators.accelerator(name).memory)
    except SkyUsageError:
        return otherwise


def make_offer(
    *, spot_usd_h: float | None = None, on_demand_usd_h: float | None = None, **facts: Cell
) -> Row:
    """Return one row of offers, with a flag when spot costs more than on demand."""
    above = spot_usd_h is not None and on_demand_usd_h is not None and spot_usd_h > on_demand_usd_h
    facts |= {"spot_usd_h": spot_usd_h, "on_demand_usd_h": on_demand_usd_h}
    return {"kind": "vm", **facts, "spot_above_on_demand": above}


def make_table(name: str, rows: Iterable[Mapping[str, Cell]]) -> pa.Table:
    """Return rows as a table of the catalog."""
    import pyarrow as pa

    from jupyter_sky.knowledge.catalog.schema import columns, conform

    listed = list(rows)
    plain = {"s": pa.string(), "f": pa.float64(), "b": pa.bool_()}
    return conform(
        name,
        pa.table(
            {
                column: pa.array([row.get(column) for row in listed], plain[kind])
                for column, kind in columns(name).items()
            }
        ),
    )
