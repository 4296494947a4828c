"""The columns of every table of the catalog.

Strings are dictionary-encoded and never null: "" means not known. Numbers that are not known are
null. Prices are list prices in USD without tax, for Linux.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# One letter per type: s string, f float64, b bool.
_COLUMNS: dict[str, str] = {
    # One instance type in one zone, or in one region where the zone is not known. The machine's
    # own facts stand in each row: repeated values cost next to nothing once compressed.
    "offers": """
        cloud:s region:s zone:s instance_type:s vcpus:f memory_gib:f arch:s accelerator:s
        accelerator_count:f accelerator_memory_gib:f on_demand_usd_h:f spot_usd_h:f price_date:s
        source:s cpu_vendor:s kind:s zone_basis:s spot_scope:s spot_date:s intel_sgx:b
        spot_above_on_demand:b
    """,
    # zones: names joined by ";".
    "regions": """
        cloud:s region:s city:s country:s continent:s latitude:f longitude:f carbon_g_per_kwh:f
        carbon_source:s carbon_free_share:f jurisdiction:s zones:s zone_count:f note:s
    """,
    # tier_from_gb: volume of the month from which usd_per_gb holds.
    "egress": "cloud:s source_region:s destination:s tier_from_gb:f usd_per_gb:f source:s note:s",
    "storage": """
        cloud:s region:s storage_class:s tier_from_gb:f usd_per_gb_month:f price_date:s source:s
    """,
    # kind: write (with lists), read, retrieval, storage, egress; an empty region is all others, an
    # empty storage_class the standard one; r2 is a store without machines.
    "requests": """
        cloud:s region:s storage_class:s kind:s unit:s usd:f basis:s price_date:s source:s note:s
    """,
    # Share of spot machines taken back within a month, in percent; band_high_pct null: open above.
    "interruptions": """
        cloud:s region:s instance_type:s interruption_band:s band_low_pct:f band_high_pct:f
        savings_pct_vs_on_demand:f as_of:s
    """,
    "managed": """
        cloud:s service:s kind:s version:s spark:s hadoop:s region:s instance_type:s unit:s usd:f
        price_date:s source:s note:s
    """,
    # Gbit/s between two virtual machines, by what the two places have in common.
    "bandwidth": """
        source_cloud:s destination_cloud:s relation:s gbit_s:f basis:s source:s note:s
    """,
}

TABLES: tuple[str, ...] = tuple(_COLUMNS)
"""Names of the tables."""

KEYS: dict[str, tuple[str, ...]] = {
    "offers": ("cloud", "region", "zone", "instance_type"),
    "regions": ("cloud", "region"),
    "egress": ("cloud", "source_region", "destination", "tier_from_gb"),
    "storage": ("cloud", "region", "storage_class", "tier_from_gb"),
    "requests": ("cloud", "region", "storage_class", "kind"),
    "interruptions": ("cloud", "region", "instance_type"),
}
"""Columns that name a row; the other tables have rows that nothing names."""


def columns(table: str) -> dict[str, str]:
    """Return a table's columns, each with ``s`` (string), ``f`` (float) or ``b`` (bool).

    Examples
    --------
    >>> columns("egress")["usd_per_gb"]
    'f'
    """
    pairs = (field.split(":") for field in _COLUMNS[table].split())
    return {name: kind for name, kind in pairs}


def schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a table.

    Examples
    --------
    >>> schema("regions").field("latitude").type
    DataType(double)
    """
    import pyarrow as pa

    kinds = {"s": pa.dictionary(pa.int16(), pa.string()), "f": pa.float64(), "b": pa.bool_()}
    return pa.schema(
        [pa.field(name, kinds[kind], kind == "f") for name, kind in columns(table).items()]
    )


def conform(table: str, rows: pa.Table) -> pa.Table:
    """Return rows in exactly the schema of a table.

    Columns may be missing (they are then not known), in any order, plain or encoded strings, any
    kind of number. Columns that the schema does not have are an error.

    Raises
    ------
    ValueError
        For a column that does not exist or that cannot become what it should be.

    Examples
    --------
    >>> import pyarrow as pa
    >>> conform("egress", pa.table({"cloud": ["aws"]})).column("source")[0].as_py()
    ''
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds, wanted = columns(table), schema(table)
    extra = set(rows.column_names) - set(kinds)
    if extra:
        raise ValueError(f"{table} has no column {', '.join(sorted(extra))}")
    arrays = []
    for name, kind in kinds.items():
        if name not in rows.column_names:
            absent = {"s": "", "f": None, "b": False}[kind]
            plain = pa.array([absent] * rows.num_rows, {"s": pa.string()}.get(kind))
        else:
            plain = rows.column(name)
            if isinstance(plain, pa.ChunkedArray):
                plain = plain.combine_chunks()
        if kind == "s":
            plain = pc.fill_null(plain.cast(pa.string()), "")
            plain = plain.dictionary_encode()
        elif kind == "b":
            plain = pc.fill_null(plain, False)
        arrays.append(plain.cast(wanted.field(name).type))
    return pa.Table.from_arrays(arrays, schema=wanted)
