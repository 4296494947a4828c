"""Data on their way to a machine: requests that a notebook signs, and no credentials there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.storage.datasets.machine_data import (
    Arrival,
    check_link,
    file_facts,
    plan_from_json,
    plan_to_json,
    replace_link,
)
from jupyter_sky.machines.storage.stores.cache import DatasetCache
from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset
from jupyter_sky.machines.storage.stores.listing import list_objects
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.machines.storage.transfers.downloads import DownloadPlan, plan_download
from tests.emulators.object_store import ObjectStore
from tests.storage.conftest import CREDENTIALS, store_of


@pytest.fixture
def compatible() -> Iterator[ObjectStore]:
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        for key, content in {"d/a": b"one", "d/sub/b": b"two" * 1000, "d/empty": b""}.items():
            server.put("bucket", key, content)
        yield server
        assert not server.crashes, server.crashes[0]


Change = Callable[[DownloadPlan], DownloadPlan]


def bring(
    server: ObjectStore, root: Path, change: Change = lambda plan: plan, seconds: float = 10.0
) -> Arrival:
    """Play the notebook until the data have come or the machine gives up."""
    store = store_of(server)
    manifest = list_objects(store, StorageUri.parse("s3://bucket/d/"))
    by_path, dataset = manifest.by_path(), manifest.dataset()
    objects = {each.identity: by_path[each.path] for each in dataset.objects}
    task = Arrival(DatasetCache(root / "cache"), dataset, root / "work/data/d")
    task.start()
    ends = time.monotonic() + seconds
    while not (state := task.state())["ended"]:
        assert time.monotonic() < ends, state
        plans = {name: change(plan_download(store, objects[name])) for name in state["wanted"]}
        message = json.dumps({name: plan_to_json(plan) for name, plan in plans.items()})
        assert CREDENTIALS.secret_key not in message
        task.add_plans({name: plan_from_json(p) for name, p in json.loads(message).items()})
        time.sleep(0.002)
    return task


def test_data_come_by_signed_requests(compatible: ObjectStore, tmp_path: Path) -> None:
    task = bring(compatible, tmp_path)
    assert not task.error
    folder = tmp_path / "work/data/d"
    assert (folder / "sub/b").read_bytes() == b"two" * 1000
    assert (folder / "empty").read_bytes() == b""
    assert task.done_bytes == 3003


def test_second_use_asks_for_no_byte(compatible: ObjectStore, tmp_path: Path) -> None:
    bring(compatible, tmp_path)
    compatible.forget_counts()
    task = bring(compatible, tmp_path)
    assert (task.done_bytes, task.error) == (0, "")
    assert compatible.count("GET /bucket/d") == 0, "only the listing"


def test_expired_requests_are_asked_for_again(compatible: ObjectStore, tmp_path: Path) -> None:
    seen: list[int] = []

    def expire(plan: DownloadPlan) -> DownloadPlan:
        seen.append(1)
        if len(seen) > 3:
            return plan
        old = tuple(replace(each, expires=time.time() - 1) for each in plan.requests)
        return DownloadPlan(old, plan.sums)

    task = bring(compatible, tmp_path, expire)
    assert not task.error
    assert len(seen) > 3


def test_busy_store_is_asked_again(compatible: ObjectStore, tmp_path: Path) -> None:
    compatible.fail("GET /bucket/d/a", "SlowDown", times=2)
    assert not bring(compatible, tmp_path).error
    assert compatible.count("GET /bucket/d/a") == 3


def test_cut_answer_is_asked_again(compatible: ObjectStore, tmp_path: Path) -> None:
    compatible.fail("GET /bucket/d/sub/b", "cut", times=1)
    assert not bring(compatible, tmp_path).error
    assert (tmp_path / "work/data/d/sub/b").read_bytes() == b"two" * 1000


def test_flipped_bit_is_not_accepted(compatible: ObjectStore, tmp_path: Path) -> None:
    compatible.fail("GET /bucket/d/sub/b", "flip", times=100)
    task = bring(compatible, tmp_path)
    assert "other bytes" in task.error
    assert not (tmp_path / "work/data/d").exists()
    assert not list((tmp_path / "cache/objects").glob("??/*"))


def test_object_that_changes_on_the_way_is_named(compatible: ObjectStore, tmp_path: Path) -> None:
    def change(plan: DownloadPlan) -> DownloadPlan:
        compatible.put("bucket", "d/a", b"new")
        return plan

    task = bring(compatible, tmp_path, change)
    assert "d/a" in task.error and "changed" in task.error


def test_cancelled_delivery_ends_without_a_dataset(tmp_path: Path) -> None:
    dataset = Dataset((CachedObject("a", "ab" * 16, 5),))
    task = Arrival(DatasetCache(tmp_path / "cache"), dataset, tmp_path / "work/a")
    task.start()
    while not task.state()["wanted"]:
        time.sleep(0.001)
    task.cancel()
    ends = time.monotonic() + 5
    while not task.state()["ended"]:
        assert time.monotonic() < ends
        time.sleep(0.001)
    assert "cancelled" in task.error
    assert not (tmp_path / "work/a").is_symlink()


def test_path_that_climbs_is_refused_on_the_machine(tmp_path: Path) -> None:
    dataset = Dataset((CachedObject("../../x", "ab" * 16, 5),))
    with pytest.raises(SkyUsageError, match="climbs out"):
        Arrival(DatasetCache(tmp_path), dataset, tmp_path / "a")


def test_path_that_is_taken_is_not_replaced(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "old").symlink_to(cache / "trees/x")
    for name, problem in (("file", "a file"), ("link", "a link to something else")):
        with pytest.raises(SkyUsageError, match=problem):
            check_link(tmp_path / name, cache)
    check_link(tmp_path / "old", cache)
    replace_link(tmp_path / "old", cache / "trees/y")
    assert (tmp_path / "old").readlink() == cache / "trees/y"


def test_facts_of_files_leave_out_links_that_lead_out(tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "model/sub").mkdir(parents=True)
    (root / "model/sub/w").write_text("12")
    (tmp_path / "secret").write_text("s")
    (root / "model/out").symlink_to(tmp_path / "secret")
    (root / "model/in").symlink_to(root / "model/sub/w")
    assert sorted(file_facts(root, "model")) == ["in", "sub/w"]
    assert file_facts(root, "model/sub/w")["w"][0] == 2
    assert file_facts(root, "none") == {}
