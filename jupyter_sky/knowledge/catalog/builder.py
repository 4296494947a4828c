"""``jupyter sky catalog build``: the files that ship, from a directory of plain CSV files.

What the CSV files must hold is written in catalog/README.md.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_sky.base.clouds.index import BUILT_IN
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests import accelerators
from jupyter_sky.base.requests.geography import jurisdiction_of
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog import files, schema

Frame = Any  # of pandas, whose stubs give half of what follows as unknown

SOURCES = {
    "offers": "offerings.csv.gz",
    "regions": "regions.csv",
    "egress": "egress.csv",
    "storage": "storage.csv",
    "interruptions": "interruptions.csv",
    "managed": "managed.csv",
    "bandwidth": "bandwidth.csv",
    "requests": "requests.csv",
}
"""Files that are read; ``.csv`` and ``.csv.gz`` both will do."""

KEPT = ("bandwidth", "requests")
"""Tables whose files may lie in the directory that is written to: they are kept there."""

# Azure documents SGX for these series alone: DCsv2, DCsv3, DCdsv3 (and the first DC, retired).
# Most accelerators that an N1 machine takes, where that is more than one.
_ATTACHED = {"K80": 8, "P4": 4, "P100": 4, "T4": 4, "V100": 8}


@dataclass
class BuildReport:
    """Result of a build: the built part and the changes made to it."""

    rows: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    bytes: int = 0

    def __str__(self) -> str:
        counted = ", ".join(f"{count:,} {table}" for table, count in self.rows.items())
        size = f"{self.bytes / 1e6:.2f} MB in all"
        return "\n".join([counted, *(f"  {note}" for note in self.notes), size])


def build(source: Path, target: Path) -> BuildReport:
    """Write the catalog that ships.

    Parameters
    ----------
    source
        Directory of the CSV files.
    target
        Directory to write to; the files of `KEPT` may lie here instead of in `source`.

    Raises
    ------
    SkyUsageError
        For a missing file or column, an unknown accelerator, or a negative price. Nothing is
        written then.

    Examples
    --------
    >>> print(build(Path("facts"), Path("catalog")))  # doctest: +SKIP
    """
    import pyarrow as pa

    report, tables = BuildReport(), {}
    for name, file in SOURCES.items():
        path = _find(source, file) or (_find(target, file) if name in KEPT else None)
        if path is None:
            raise SkyUsageError(
                _("{source}: there is no {file}").format(source=source, file=file),
                hint=_("catalog/README.md says what it must hold"),
            )
        frame = _read(path, name)
        _refuse_negative(frame, path)
        tables[name] = frame
    tables["regions"] = _with_countries(tables["regions"], tables["offers"], report)
    tables["egress"] = _egress(tables["egress"], report)
    tables["offers"] = _offers(tables["offers"], report)
    arrow = {
        name: pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        for name, frame in tables.items()
    }
    clouds = tuple(sorted(tables["offers"]["cloud"].unique()))
    meta = files.PartMetadata(
        "shipped", clouds, sources=_sources(tables), built=_built(tables["offers"])
    )
    written = files.write(target, arrow, meta)
    report.rows.update({name: len(frame) for name, frame in tables.items()})
    names = (*written.tables.values(), "shipped.json")
    report.bytes = sum((target / name).stat().st_size for name in names)
    return report


def _find(folder: Path, file: str) -> Path | None:
    stem = file.removesuffix(".gz")
    return next((folder / n for n in (f"{stem}.gz", stem) if (folder / n).is_file()), None)


def _read(path: Path, table: str) -> Frame:
    import pandas as pd

    kinds = schema.columns(table)
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    missing = set(kinds) - set(frame.columns) - {"intel_sgx", "spot_above_on_demand"}
    if missing:
        raise SkyUsageError(
            _("{path}: the column {missing} is missing").format(
                path=path, missing=", ".join(sorted(missing))
            )
        )
    for name in frame.columns.intersection(list(kinds)):
        if kinds[name] == "f":
            try:
                numbers: Frame = pd.to_numeric(frame[name].replace("", None))
                frame[name] = numbers.astype(float)
            except ValueError as error:
                raise SkyUsageError(
                    _("{path}: column {name}: {error}").format(path=path, name=name, error=error)
                ) from None
    return frame[[name for name in kinds if name in frame.columns]]


def _refuse_negative(frame: Frame, path: Path) -> None:
    for name in frame.columns:
        if "usd" in name and (bad := frame.index[frame[name] < 0]).size:
            # the header is line 1
            raise SkyUsageError(
                _("{path}, line {bad}: {name} is {frame}, below zero").format(
                    path=path, bad=bad[0] + 2, name=name, frame=frame[name][bad[0]]
                ),
                hint=_("correct it, or leave it empty where the price is not known"),
            )


def _offers(frame: Frame, report: BuildReport) -> Frame:
    import pandas as pd

    frame = frame.copy()
    written = [name for name in frame["accelerator"].unique() if name]
    names = {name: accelerators.canonical(name) for name in written}
    frame["accelerator"] = frame["accelerator"].map({"": "", **names})
    frame = _tpu_slices(frame)
    frame["intel_sgx"] = False
    for name, facts in BUILT_IN.items():
        if facts.sgx_types:
            named = frame["instance_type"].str.fullmatch(facts.sgx_types)
            frame["intel_sgx"] |= (frame["cloud"] == name) & named
    hosted = _attach_gpus(frame)
    if len(hosted):
        frame = pd.concat([frame, hosted], ignore_index=True)
    frame["spot_above_on_demand"] = frame["spot_usd_h"] > frame["on_demand_usd_h"]
    double = frame.duplicated(list(schema.KEYS["offers"]), keep="first")
    unpriced = frame["on_demand_usd_h"].isna() & frame["spot_usd_h"].isna()
    report.notes += [
        f"{int(frame['spot_above_on_demand'].sum())} rows whose spot price is above on-demand",
        f"{int(unpriced.sum()):,} rows without any price",
        f"{len(hosted)} rows of a GPU with the N1 machine that carries it",
        f"{int(double.sum())} rows that name the same offer twice, the first kept",
    ]
    order = "vcpus memory_gib accelerator_count cloud region zone instance_type".split()
    keys = {name: frame[name].fillna(0) if name in order[:3] else frame[name] for name in order}
    kept: Frame = pd.DataFrame(keys)[~double]
    return frame.loc[kept.sort_values(order, kind="stable").index]


def _tpu_slices(frame: Frame) -> Frame:
    """Count a TPU slice as one accelerator: users ask for tpu-v3-8, not for four chips."""
    tpu = frame["kind"] == "tpu"
    for index in frame.index[tpu]:
        one = accelerators.accelerator(str(frame.at[index, "instance_type"]))
        frame.loc[index, ["accelerator", "accelerator_count", "accelerator_memory_gib"]] = [
            one.name,
            1.0,
            one.memory,
        ]
    return frame


def _attach_gpus(frame: Frame) -> Frame:
    """Return GPUs that are sold apart, each with eight vCPUs of the N1 machine that carries it."""
    import pandas as pd

    parts = frame[(frame["kind"] == "accelerator-attach") & (frame["accelerator_count"] == 1)]
    hosts = {
        (row.region, row.zone, row.instance_type): row
        for row in frame[frame["instance_type"].str.startswith("n1-standard-")].itertuples()
    }
    found: list[dict[str, Any]] = []
    for part in parts.itertuples():
        count = 1
        while count <= _ATTACHED.get(str(part.accelerator), 1):
            host = hosts.get((part.region, part.zone, f"n1-standard-{8 * count}"))
            if host is not None:
                found.append(_machine(part, host, count))
            count *= 2
    return pd.DataFrame(found, columns=frame.columns)


def _machine(part: Any, host: Any, count: int) -> dict[str, Any]:
    return {
        **host._asdict(),
        "instance_type": f"{host.instance_type}+{part.accelerator}:{count}",
        "accelerator": part.accelerator,
        "accelerator_count": float(count),
        "accelerator_memory_gib": part.accelerator_memory_gib,
        "on_demand_usd_h": host.on_demand_usd_h + count * part.on_demand_usd_h,
        "spot_usd_h": host.spot_usd_h + count * part.spot_usd_h,
        "source": f"{host.source}+{part.source}",
        # the older of the two dates is that of the sum
        "price_date": min(host.price_date, part.price_date),
        "spot_date": min(host.spot_date, part.spot_date),
    }


def _with_countries(regions: Frame, offers: Frame, report: BuildReport) -> Frame:
    """Return regions, with those of a marketplace that names its regions by their countries."""
    import pandas as pd

    known = set(zip(regions["cloud"], regions["region"], strict=True))
    pairs = offers[["cloud", "region"]].drop_duplicates().itertuples(index=False)
    added = [
        {
            "cloud": cloud,
            "region": region,
            "country": region,
            "jurisdiction": jurisdiction_of(region),
            "note": "the marketplace names the country only",
        }
        for cloud, region in pairs
        if (cloud, region) not in known and re.fullmatch("[A-Z]{2}", region)
    ]
    report.notes.append(f"{len(added)} regions that are countries of a marketplace")
    frame: Frame = pd.DataFrame(added, columns=regions.columns)
    for name, kind in schema.columns("regions").items():
        column = frame[name]
        frame[name] = column.astype(float) if kind == "f" else column.astype(object).fillna("")
    return pd.concat([regions, frame], ignore_index=True)


def _egress(frame: Frame, report: BuildReport) -> Frame:
    """Return prices of whole transfers, with one ladder of tiers for each route."""
    frame = frame.copy()
    both = frame["note"].str.startswith("charged on each side")
    frame.loc[both, "usd_per_gb"] *= 2
    frame.loc[both, "note"] = "charged on both sides: the sum"
    # Azure's list still carries the ladder of an older allowance (5 GB) beside that of 100 GB.
    way = ["cloud", "source_region", "destination"]
    newer = frame[frame["tier_from_gb"].eq(100)][way].apply(tuple, axis=1)
    older = frame[way].apply(tuple, axis=1).isin(set(newer)) & frame["tier_from_gb"].isin(
        [5, 10005, 50005, 150005]
    )
    report.notes.append(f"{int(older.sum())} egress tiers of a ladder that a newer one replaces")
    return frame[~older]


def _sources(tables: dict[str, Frame]) -> dict[str, str]:
    """Return each source with the newest date of its prices.

    In a joined key only the first part gave the price; the others carry their date in their name,
    if any.
    """
    found: dict[str, str] = {}
    for frame in tables.values():
        if "source" not in frame:
            continue
        dates = frame["price_date"] if "price_date" in frame else frame["source"].str.slice(0, 0)
        for joined, day in dates.groupby(frame["source"]).max().items():
            first, *others = str(joined).split("+")
            found[first] = max(found.get(first, ""), day)
            for key in others:
                named = re.search(r"-(\d{4}(-\d{2})?)$", key)
                found.setdefault(key, named[1] if named else "")
    return {key: day for key, day in sorted(found.items()) if key}


def _built(offers: Frame) -> str:
    """Return the newest date in the data: the same facts make the same files on any day."""
    return str(offers["price_date"].max())
