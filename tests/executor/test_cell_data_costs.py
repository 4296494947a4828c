"""Costs of ``--data`` and ``--out``: the ledger has what the store counts; areas are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky import catalog
from jupyter_sky.base.store.store import SpendRow, Store
from jupyter_sky.machines.storage.datasets.mounts import missing_for_mounts
from tests.conftest import Notebook, wait_until
from tests.emulators.object_store import ObjectStore

pytestmark = pytest.mark.slow
PLACE = "aws/us-east-1"


@pytest.fixture(scope="module")
def notebook(data_dir: Path, folder: Path, sky_env: dict[str, str]) -> Iterator[Notebook]:
    """A kernel whose machines have a cache of their own."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    keys = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}
    env = {**sky_env, "SKY_DATA_DIR": str(data_dir), "HOME": str(home), **keys}
    made = Notebook(folder, env, "costs.ipynb")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    """A bucket that is said to be in a region of Amazon."""
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        for number in range(20):
            server.put("bucket", f"set/{number}", bytes(100_000))
        yield server


def at(bucket: ObjectStore, key: str) -> str:
    return f"s3://bucket/{key}?endpoint={bucket.url}&place={PLACE}"


def counted_usd(bucket: ObjectStore) -> float:
    """The bill by the store's own counts."""
    usd = catalog.load().egress(PLACE, "internet", sum(bucket.bytes_out.values()) / 1e9).usd or 0.0
    for request in bucket.requests:
        is_list = request.startswith("GET") and "list-type" in request
        usd += 5e-6 if request.startswith("P") or is_list else 0.4e-6
    return usd


def booked(data_dir: Path) -> list[SpendRow]:
    store = Store.open(data_dir)
    try:
        return store.other_costs()
    finally:
        store.close()


def test_data_are_booked_as_the_store_counts_them(
    notebook: Notebook, bucket: ObjectStore, data_dir: Path
) -> None:
    bucket.fail("GET /bucket/set/7", "InternalError", times=2)
    cell = f"%%sky --data {at(bucket, 'set/')}\nimport os; print(len(os.listdir('data/set')))"
    ran = notebook.run(cell)
    assert ran.stdout == "20\n", ran.evalue
    (row,) = booked(data_dir)
    assert row.usd == pytest.approx(counted_usd(bucket), rel=1e-3)
    assert f"from {PLACE}" in row.what and "requests" in row.what
    bucket.forget_counts()
    notebook.run(cell)
    again = booked(data_dir)[1:]
    assert sum(row.usd or 0.0 for row in again) == pytest.approx(counted_usd(bucket), rel=1e-3)
    assert not bucket.count("GET /bucket/set"), "the second cell lists, and nothing else"


def test_dry_run_says_what_data_cost_and_what_is_there(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    shown = notebook.run(f"%%sky --dry-run --data {at(bucket, 'set/')}\n1").result
    assert "2.0 MB in 20 objects" in shown and "there already, 0 bytes, $0.00" in shown
    bucket.put("bucket", "set/new", b"1" * 10**6)
    shown = notebook.run(
        f"%%sky --dry-run --data {at(bucket, 'set/')} --out m:{at(bucket, 'out/')}\n1"
    ).result
    assert "3.0 MB in 21 objects, aws/us-east-1 → local: about" in shown, shown
    assert "egress (listed) + $" in shown and "requests (listed)" in shown
    assert "m: local → aws/us-east-1: for each GB $0.00 egress (listed) + $0.0" in shown


def test_uploads_are_booked_as_the_store_counts_them(
    notebook: Notebook, bucket: ObjectStore, data_dir: Path
) -> None:
    before = len(booked(data_dir))
    bucket.forget_counts()
    ran = notebook.run(
        f"%%sky --out m.bin:{at(bucket, 'out/')}\nopen('m.bin', 'w').write('x' * 999)"
    )
    assert ran.status == "ok", ran.evalue
    (row,) = booked(data_dir)[before:]
    assert row.usd == pytest.approx(counted_usd(bucket), rel=1e-3)
    assert "1 writes to s3://bucket/out/" in row.what


@pytest.mark.skipif(bool(missing_for_mounts()), reason=f"needs {missing_for_mounts()}")
def test_reads_of_mounts_are_booked_as_the_store_counts_them(
    notebook: Notebook, bucket: ObjectStore, data_dir: Path
) -> None:
    before = len(booked(data_dir))
    bucket.forget_counts()
    ran = notebook.run(
        f"%%sky --mount {at(bucket, 'set/')}:./m\nprint(sum(map(ord, open('m/3').read())))"
    )
    assert ran.stdout == "0\n", ran.evalue
    wait_until(lambda: len(booked(data_dir)) > before)
    (row,) = booked(data_dir)[before:]
    assert bucket.count("GET /bucket/set") == 1
    assert row.usd == pytest.approx(counted_usd(bucket), rel=1e-3)
    assert row.what.startswith("s3://bucket/set/") and "100.0 kB" in row.what


@pytest.mark.parametrize("option", ["--data", "--mount"])
def test_data_do_not_leave_their_area(notebook: Notebook, bucket: ObjectStore, option: str) -> None:
    notebook.run("%config Sky.residency = {'s3://bucket/set/': 'eu'}")
    bucket.forget_counts()
    ran = notebook.run(f"%%sky {option} {at(bucket, 'set/')}\nprint('ran')")
    assert ran.status == "error" and "ran\n" not in ran.stdout
    assert "aws/us-east-1 is in US, not in EU: 0 bytes were sent" in ran.traceback
    assert "Sky.residency['s3://bucket/set/'] = 'eu'" in ran.traceback
    assert not bucket.count("GET /bucket/set")
    notebook.run("%config Sky.residency = {}")
