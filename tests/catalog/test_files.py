from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.knowledge.catalog import files, loader, schema
from jupyter_sky.knowledge.catalog.files import PartMetadata

pytestmark = pytest.mark.usefixtures("small")

ROW = {"cloud": "aws", "region": "r", "zone": "r1", "instance_type": "m", "kind": "vm"}


def offers(**columns) -> pa.Table:
    rows = len(next(iter(columns.values())))
    return pa.table({**{key: [value] * rows for key, value in ROW.items()}, **columns})


def test_written_catalog_is_read_back(tmp_path):
    given = offers(instance_type=["a", None], on_demand_usd_h=[0.1, None], vcpus=[2, 4])
    meta = files.write(
        tmp_path, {"offers": given}, PartMetadata("aws", ("aws",), sources={"s": "2026"})
    )
    assert files.parts(tmp_path) == [meta] and meta.built
    table = files.read(tmp_path, meta, "offers")
    assert table.schema == schema.schema("offers")
    assert table.column("instance_type").to_pylist() == ["a", ""]
    assert table.column("on_demand_usd_h").to_pylist() == [0.1, None]
    assert table.column("vcpus").to_pylist() == [2.0, 4.0]
    assert table.column("intel_sgx").to_pylist() == [False, False]
    assert files.read(tmp_path, meta, "regions") is None


def test_the_same_facts_make_the_same_files(tmp_path):
    for folder in ("a", "b"):
        meta = PartMetadata("aws", ("aws",), built="2026-01-01")
        files.write(tmp_path / folder, {"offers": offers(vcpus=[2])}, meta)
    a, b = (sorted(path.name for path in (tmp_path / f).iterdir()) for f in ("a", "b"))
    assert a == b
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in a)


def test_new_part_replaces_only_its_predecessor(tmp_path):
    files.write(tmp_path, {"offers": offers(vcpus=[2])}, PartMetadata("aws", ("aws",)))
    files.write(tmp_path, {"offers": offers(vcpus=[3])}, PartMetadata("aws-extra", ("aws",)))
    files.write(tmp_path, {"offers": offers(vcpus=[4])}, PartMetadata("aws", ("aws",)))
    found = {
        m.part: files.read(tmp_path, m, "offers")["vcpus"].to_pylist()
        for m in files.parts(tmp_path)
    }
    assert found == {"aws": [4.0], "aws-extra": [3.0]}
    assert len(list(tmp_path.glob("*.arrow"))) == 2 and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"offer": offers(vcpus=[2])}, "no table offer"),
        ({"offers": offers(cpu=[2])}, "no column cpu"),
    ],
)
def test_mismatched_tables_change_nothing(tmp_path, tables, message):
    before = files.write(tmp_path, {"offers": offers(vcpus=[2])}, PartMetadata("aws", ("aws",)))
    with pytest.raises(ValueError, match=message):
        files.write(tmp_path, tables, PartMetadata("aws", ("aws",)))
    assert files.parts(tmp_path) == [before]


def test_two_that_write_one_part_leave_it_whole(tmp_path, monkeypatch):
    write_file, written = files.write_atomically, threading.Event()

    def slow(path, data, **options):
        mine = threading.current_thread().name
        if path.name == "aws.json" and mine == "first":
            other.start()
            written.wait(0.5)  # long enough for the other's table, if nothing keeps it away
        write_file(path, data, **options)
        if mine == "second" and path.suffix == ".arrow":
            written.set()
            first.join(5)

    def write(vcpus):
        files.write(tmp_path, {"offers": offers(vcpus=[vcpus])}, PartMetadata("aws", ("aws",)))

    monkeypatch.setattr(files, "write_atomically", slow)
    first = threading.Thread(target=write, args=(2,), name="first")
    other = threading.Thread(target=write, args=(4,), name="second")
    first.start()
    first.join()
    other.join()
    (meta,) = files.parts(tmp_path)
    assert files.read(tmp_path, meta, "offers")["vcpus"].to_pylist() == [4.0]


def test_a_failed_write_leaves_the_old_part(tmp_path, monkeypatch):
    before = files.write(tmp_path, {"offers": offers(vcpus=[2])}, PartMetadata("aws", ("aws",)))
    replace = os.replace

    def full(source, target):
        if str(target).endswith(".json"):
            raise OSError("no space left")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        files.write(tmp_path, {"offers": offers(vcpus=[9])}, PartMetadata("aws", ("aws",)))
    (meta,) = files.parts(tmp_path)
    assert meta == before and files.read(tmp_path, meta, "offers")["vcpus"].to_pylist() == [2.0]
    assert not list(tmp_path.glob(".*"))


def damage_json(folder):
    (folder / "aws.json").write_text("{")


def damage_format(folder):
    text = json.loads((folder / "aws.json").read_text())
    (folder / "aws.json").write_text(json.dumps({**text, "format": 99}))


def damage_table(folder):
    (table,) = folder.glob("*.arrow")
    table.write_bytes(table.read_bytes()[:100])


def lose_table(folder):
    (table,) = folder.glob("*.arrow")
    table.unlink()


def damage_kinds(folder):
    (folder / "aws.json").write_text(
        json.dumps({"format": 1, "part": "aws", "clouds": 3, "built": 1, "sources": {}})
    )


def damage_names(folder):
    found = json.loads((folder / "aws.json").read_text())
    (folder / "aws.json").write_text(json.dumps({**found, "tables": ["offers"]}))


@pytest.mark.parametrize(
    "damage",
    [damage_json, damage_format, damage_kinds, damage_names, damage_table, lose_table],
)
def test_damaged_refresh_is_reported_and_skipped(data_dir, damage):
    files.write(data_dir / "catalog", {"offers": offers(vcpus=[2])}, PartMetadata("aws", ("aws",)))
    damage(data_dir / "catalog")
    catalog = loader.load()
    (problem,) = catalog.problems
    assert str(data_dir) in problem and "cannot be used" in problem
    assert len(catalog.filter(cloud="aws")) > 1000


def test_a_catalog_that_is_not_there(data_dir, tmp_path):
    with pytest.raises(SkyStoreError, match="not there"):
        loader.load(shipped=tmp_path / "none")


def test_the_refreshed_cloud_wins_and_the_others_stay(data_dir):
    shipped = len(loader.load().filter(cloud="gcp"))
    new = offers(instance_type=["m5.large", "new"], on_demand_usd_h=[0.2, 0.1], vcpus=[2, 1])
    files.write(data_dir / "catalog", {"offers": new}, PartMetadata("aws", ("aws",)))
    catalog = loader.load()
    assert [o.instance_type for o in catalog.filter(cloud="aws")] == ["new", "m5.large"]
    assert len(catalog.filter(cloud="gcp")) == shipped
    # the part brought no regions: those that ship still hold
    assert catalog.region("aws", "us-east-1").country == "US"
    order = catalog.filter(cpus=2, max_hourly_cost=0.2).sorted()
    assert order.price.tolist() == sorted(order.price.tolist())


def test_loaded_once_until_a_file_changes(data_dir):
    first = loader.load()
    assert loader.load() is first
    files.write(data_dir / "catalog", {"offers": offers(vcpus=[2])}, PartMetadata("aws", ("aws",)))
    second = loader.load()
    assert second is not first and loader.load() is second
    assert len(second.filter(cloud="aws")) == 1


def fresh() -> object:
    loader._LOADED.clear()
    return loader.load()


def test_the_decoded_copy_says_the_same(data_dir):
    first = fresh()
    assert list((data_dir / "cache").glob("catalog-*"))
    second = fresh()
    for labels in ({"gpus": "A100:8"}, {"region": "us", "arch": "arm64"}, {"service": "emr"}):
        assert second.filter(**labels).offers(50) == first.filter(**labels).offers(50)
    assert second.egress("aws/us-east-1", "internet", 5) == first.egress(
        "aws/us-east-1", "internet", 5
    )
    for table in schema.TABLES:
        ours, theirs = second.table(table), first.table(table)
        assert ours.schema == theirs.schema
        assert ours.slice(0, 500).to_pylist() == theirs.slice(0, 500).to_pylist()


@pytest.mark.parametrize("spoil", ["truncate", "lose", "lie", "cut", "empty", "list"])
def test_corrupt_decoded_copy_is_rebuilt(data_dir, spoil):
    fresh()
    (folder,) = (data_dir / "cache").glob("catalog-*")
    if spoil == "truncate":
        path = folder / "cloud.npy"
        path.write_bytes(path.read_bytes()[:1000])
    elif spoil == "lose":
        (folder / "regions.json").unlink()
    elif spoil in ("cut", "empty"):
        (folder / "regions.json").write_text("[1," if spoil == "cut" else "{}")
    elif spoil == "list":
        (folder / "head.json").write_text("[]")
    else:
        head = json.loads((folder / "head.json").read_text())
        (folder / "head.json").write_text(json.dumps({**head, "signature": "another"}))
    for _ in range(2):
        (offer, *_) = fresh().filter(gpus="A100:8", cloud="aws", spot=True).offers()
        assert (offer.instance_type, offer.price) == ("p4d.24xlarge", 14.091725)
        assert offer.country == "US"


def test_unwritable_cache_directory_only_slows_loading(data_dir, monkeypatch):
    (data_dir / "cache").write_text("a file where the directory would be")
    assert len(fresh().filter(cloud="aws")) > 1000


def test_loaded_catalog_survives_removal_of_earlier_files(data_dir):
    table = {"egress": pa.table({"cloud": ["aws"], "source_region": ["*"], "usd_per_gb": [0.5]})}
    files.write(data_dir / "catalog", table, PartMetadata("aws", ("aws",)))
    held = loader.load()
    for path in (data_dir / "catalog").iterdir():  # as a refresh in another process does
        path.unlink()
    assert [row["usd_per_gb"] for row in held.rows("egress") if row["cloud"] == "aws"] == [0.5]


def test_files_removed_while_being_read(data_dir, monkeypatch):
    rows = offers(instance_type=["old"], on_demand_usd_h=[0.2])
    files.write(data_dir / "catalog", {"offers": rows}, PartMetadata("aws", ("aws",)))
    layered, seen = loader._layered, []

    def refreshed_meanwhile(*arguments):
        if not seen:
            new = offers(instance_type=["new"], on_demand_usd_h=[0.2])
            files.write(data_dir / "catalog", {"offers": new}, PartMetadata("aws", ("aws",)))
            for path in (data_dir / "catalog").glob("*.arrow"):
                seen.append(path.read_bytes())
                path.unlink()
            answer = layered(*arguments)
            path.write_bytes(seen[0])
            os.utime(data_dir / "catalog" / "aws.json")
            return answer
        return layered(*arguments)

    monkeypatch.setattr(loader, "_layered", refreshed_meanwhile)
    catalog = loader.load()
    assert [o.instance_type for o in catalog.filter(cloud="aws")] == ["new"]
    assert catalog.problems == ()


def test_a_data_directory_that_is_none(data_dir):
    (data_dir / "catalog").write_text("a file where the directory would be")
    assert len(fresh().filter(cloud="aws")) > 1000


def test_decoded_copy_loads_without_arrow_and_names_of_clouds(tmp_path):
    code = "import sys; from jupyter_sky import catalog; catalog.load().offers; print(*sys.modules)"
    environment = os.environ | {"SKY_DATA_DIR": str(tmp_path), "SKY_OFFERS": ""}
    for _ in range(2):  # the first process decodes
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True
        )
    imported = set(done.stdout.decode().split())
    assert "jupyter_sky.knowledge.catalog.loader" in imported
    slow = {
        "pyarrow",
        "importlib.metadata",
        "jupyter_sky.base.requests.geography",
        "jupyter_sky.base.requests.accelerators",
    }
    assert not slow & imported
