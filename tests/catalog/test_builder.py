from __future__ import annotations

import csv

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.interfaces.magics import verbs
from jupyter_sky.knowledge.catalog import files, loader, schema
from jupyter_sky.knowledge.catalog.builder import SOURCES, build

OFFER = {
    "cloud": "gcp",
    "region": "r",
    "zone": "r-a",
    "instance_type": "n1-standard-8",
    "vcpus": "8",
    "memory_gib": "30",
    "arch": "x86_64",
    "on_demand_usd_h": "0.4",
    "spot_usd_h": "0.1",
    "price_date": "2026-07-30",
    "source": "prices",
    "cpu_vendor": "Intel",
    "kind": "vm",
    "spot_date": "2026-07-01",
}
GPU = {
    **OFFER,
    "instance_type": "n1-attach/V100",
    "accelerator": "nvidia-tesla-v100",
    "accelerator_count": "1",
    "accelerator_memory_gib": "16",
    "on_demand_usd_h": "2.5",
    "spot_usd_h": "0.5",
    "kind": "accelerator-attach",
    "source": "gpus",
    "price_date": "2026",
    "vcpus": "",
    "memory_gib": "",
}
WORKED_OUT = ("intel_sgx", "spot_above_on_demand")
TPU = {**OFFER, "instance_type": "tpu-v3-8", "accelerator": "tpu-v3", "accelerator_count": "4"}
TPU |= {"accelerator_memory_gib": "32", "kind": "tpu"}


@pytest.fixture
def source(tmp_path):
    """Function that writes CSV files with the given rows and gives their directory."""

    def write(**tables):
        for name, file in SOURCES.items():
            columns = [c for c in schema.columns(name) if c not in WORKED_OUT]
            with (tmp_path / file.removesuffix(".gz")).open("w", newline="") as out:
                writer = csv.DictWriter(out, columns, restval="")
                writer.writeheader()
                writer.writerows(tables.get(name, []))
        return tmp_path

    return write


def built(source, target, **tables):
    report = build(source(**tables), target)
    (meta,) = files.parts(target)
    return report, {name: files.read(target, meta, name).to_pylist() for name in schema.TABLES}


def test_offers_are_normalised_and_kept(source, tmp_path):
    rows = [
        OFFER,
        GPU,
        TPU,
        {**OFFER, "instance_type": "new", "on_demand_usd_h": "", "spot_usd_h": ""},
        {**OFFER, "instance_type": "dear", "spot_usd_h": "0.5"},
        {**OFFER, "cloud": "azure", "instance_type": "Standard_DC4s_v3"},
        {**OFFER, "cloud": "azure", "instance_type": "Standard_DC4as_v5"},
        OFFER,
    ]
    report, tables = built(source, tmp_path / "out", offers=rows)
    found = {row["instance_type"]: row for row in tables["offers"]}
    assert len(found) == len(tables["offers"]) == 8
    host = found["n1-standard-8+V100:1"]
    assert (host["on_demand_usd_h"], host["spot_usd_h"], host["vcpus"]) == (2.9, 0.6, 8)
    assert (host["source"], host["price_date"]) == ("prices+gpus", "2026")
    assert found["n1-attach/V100"]["accelerator"] == "V100"
    slice_ = found["tpu-v3-8"]
    assert (slice_["accelerator"], slice_["accelerator_count"]) == ("tpu-v3-8", 1)
    assert slice_["accelerator_memory_gib"] == 128
    assert found["new"]["on_demand_usd_h"] is None
    assert [n for n, row in found.items() if row["spot_above_on_demand"]] == ["dear"]
    assert [n for n, row in found.items() if row["intel_sgx"]] == ["Standard_DC4s_v3"]
    assert report.rows["offers"] == 8 and "1 rows that name the same offer twice" in str(report)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([OFFER, {**OFFER, "on_demand_usd_h": "-0.1"}], "line 3: on_demand_usd_h is -0.1"),
        ([{**OFFER, "spot_usd_h": "-1"}], "line 2: spot_usd_h"),
        ([{**OFFER, "accelerator": "V1000"}], "V1000"),
        ([{**OFFER, "vcpus": "many"}], "vcpus"),
    ],
)
def test_invalid_observation_is_refused_and_not_written(source, tmp_path, rows, message):
    with pytest.raises(SkyUsageError, match=message):
        build(source(offers=rows), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_negative_egress_is_refused(source, tmp_path):
    rows = [{"cloud": "aws", "usd_per_gb": "-1", "tier_from_gb": "0"}]
    with pytest.raises(SkyUsageError, match=r"egress\.csv, line 2: usd_per_gb"):
        build(source(offers=[OFFER], egress=rows), tmp_path / "out")


def test_a_missing_file_or_column_is_named(source, tmp_path):
    folder = source(offers=[OFFER])
    (folder / "regions.csv").write_text("cloud,region\n")
    with pytest.raises(SkyUsageError, match=r"regions\.csv: the column .*city"):
        build(folder, tmp_path / "out")
    (folder / "regions.csv").unlink()
    with pytest.raises(SkyUsageError, match=r"there is no regions\.csv"):
        build(folder, tmp_path / "out")


def test_egress_has_one_ladder_and_both_sides(source, tmp_path):
    way = {"cloud": "azure", "source_region": "r", "destination": "internet"}
    rows = [{**way, "tier_from_gb": t, "usd_per_gb": "0.1"} for t in (5, 100, 10005, 10100)]
    rows += [
        {
            "cloud": "aws",
            "source_region": "r",
            "destination": "cross-zone",
            "tier_from_gb": "0",
            "usd_per_gb": "0.01",
            "note": "charged on each side: 0.01 out and 0.01 in",
        }
    ]
    _, tables = built(source, tmp_path / "out", offers=[OFFER], egress=rows)
    assert [row["tier_from_gb"] for row in tables["egress"]] == [100, 10100, 0]
    assert tables["egress"][-1]["usd_per_gb"] == 0.02


def test_a_marketplace_s_countries_become_regions(source, tmp_path):
    offers = [{**OFFER, "cloud": "vast", "region": country} for country in ("BG", "AU")]
    _, tables = built(source, tmp_path / "out", offers=[*offers, OFFER])
    assert [(r["region"], r["jurisdiction"]) for r in tables["regions"]] == [
        ("BG", "EU"),
        ("AU", "AU"),
    ]


def test_the_command(source, tmp_path, capsys):
    out = str(tmp_path / "out")
    verbs.call_verb(["catalog", "build", str(source(offers=[OFFER])), "-o", out])
    assert "1 offers" in capsys.readouterr().out
    assert files.parts(tmp_path / "out")[0].clouds == ("gcp",)
    for words in (["biuld"], ["build", "a", "b"], ["build", "-o"], ["build", str(tmp_path / "no")]):
        with pytest.raises(SkyUsageError):
            verbs.call_verb(["catalog", *words])


def test_shipped_catalog_is_small_and_names_its_sources():
    folder = loader.shipped_directory()
    (meta,) = files.parts(folder)
    assert set(meta.tables) == set(schema.TABLES)
    assert {"aws", "azure", "gcp", "lambda", "vast"} < set(meta.clouds)
    assert meta.sources["gcp-billing-via-gcosts-2026-07"] == "2026-07-30"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 5e6
    assert "gap" in (folder / "README.md").read_text().lower()
