"""Observations in the store: several processes, old stores, what compaction leaves as it was."""

from __future__ import annotations

import json
import multiprocessing
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyStoreError, SkyUsageError
from jupyter_sky.base.store import store as store_module
from jupyter_sky.base.store.store import Store
from jupyter_sky.knowledge.tracker import Observation, Place, Tracker
from jupyter_sky.knowledge.tracker.observations import DAY
from jupyter_sky.knowledge.tracker.records import PERIOD
from tests.store.rows import CLUSTER, locked

HERE = Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", True)
NEXT = replace(HERE, zone="us-east-1b")
NOW = 1_800_000_000.0


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[Tracker]:
    store = Store.open(tmp_path)
    yield Tracker(store.database)
    store.close()


def another(directory: Path) -> Tracker:
    """A tracker of another connection, as another kernel has it."""
    return Tracker(Store.open(directory).database)


def rows(directory: Path, table: str = "observations") -> int:
    db = sqlite3.connect(directory / "sky.db")
    try:
        return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    finally:
        db.close()


def refused(at: float, cause: str = "capacity", why: str = "none left") -> Observation:
    return Observation("refused", HERE, at, cause, why=why)


def test_observations_come_back_as_they_went_in(tracker: Tracker, tmp_path: Path) -> None:
    seen = (
        Observation("launched", HERE, 1.0, seconds=31.5),
        refused(2.0),
        Observation("preempted", NEXT, 3.0, seconds=3600),
        Observation("ended", replace(HERE, zone=""), 4.0, seconds=60),
    )
    tracker.record(*seen)
    assert tracker.observations() == another(tmp_path).observations() == seen


def test_numbers_of_numpy_are_kept_as_numbers(tracker: Tracker, tmp_path: Path) -> None:
    tracker.record(Observation("launched", HERE, np.float32(8), seconds=np.float32(0.5)))
    tracker.record(Observation("price", HERE, np.int64(8), usd=np.float32(0.25)))
    assert another(tmp_path).observations() == (Observation("launched", HERE, 8, seconds=0.5),)
    assert another(tmp_path).prices(9)[HERE].usd == 0.25


def test_observations_of_another_kernel_are_visible(tracker: Tracker, tmp_path: Path) -> None:
    assert tracker.knowledge(NOW).block(HERE) is None
    other = another(tmp_path)
    other.record(refused(NOW))
    assert tracker.knowledge(NOW).block(HERE) is not None
    tracker.record(Observation("launched", HERE, NOW + 0.1))
    assert other.knowledge(NOW + 0.2).block(HERE) is None


def test_knowledge_is_read_once_while_nothing_is_new(tracker: Tracker) -> None:
    tracker.record(refused(NOW))
    first = tracker.knowledge(NOW)
    assert tracker.knowledge(NOW + 0.5) is first
    assert tracker.knowledge(NOW + 5) is not first
    assert tracker.knowledge(NOW - 5) is not first, "the past is not answered from the present"


def test_one_bad_observation_keeps_the_others_out(tracker: Tracker) -> None:
    with pytest.raises(SkyUsageError, match="age is missing"):
        tracker.record(refused(NOW), Observation("preempted", HERE, NOW))
    assert tracker.observations() == ()


def test_a_locked_store_delays_the_record_and_not_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_sky.base.store.database.LOCK_TIMEOUT_SECONDS", 0.2)
    store = Store.open(tmp_path)
    tracker = Tracker(store.database)
    with locked(tmp_path / "sky.db"):
        tracker.record(refused(NOW))
    assert len(store.notices) == 1 and "wait" in store.notices[0]
    assert tracker.observations() == (refused(NOW),)
    assert rows(tmp_path) == 1


def _observe_many(directory: Path, which: int, count: int) -> None:
    mine = Tracker(Store.open(directory).database)
    place = replace(HERE, zone=f"zone-{which}")
    for number in range(count):
        mine.record(Observation("launched", place, NOW - 4 * DAY + number, seconds=which))
        mine.record(Observation("price", place, NOW + number, usd=which))
    mine.compact(NOW)


def test_processes_write_and_compact_together(tmp_path: Path) -> None:
    """Nothing is lost and nothing counted twice, though all fold the same rows at the same time."""
    Store.open(tmp_path).close()
    context = multiprocessing.get_context("spawn")
    count, number = 60, 3
    workers = [
        context.Process(target=_observe_many, args=(tmp_path, which, count))
        for which in range(number)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    seen = another(tmp_path).observations()
    assert sum(one.events for one in seen) == count * number
    assert sum(one.weight for one in seen) == pytest.approx(count * number, rel=1e-3)
    prices = another(tmp_path).prices(NOW + count)
    assert [prices[replace(HERE, zone=f"zone-{n}")].usd for n in range(number)] == [0, 1, 2]


# -- migration --------------------------------------------------------------------------------


def put_old_cluster(folder: Path) -> None:
    """Write the records of the first version for a cluster and an hour of it."""
    values = {f.name: getattr(CLUSTER, f.name) for f in fields(CLUSTER)}
    values |= {name: json.dumps(values[name]) for name in ("offer", "machines", "connection")}
    del values["note"], values["kept"], values["renewed"]
    names = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    with closing(sqlite3.connect(folder / "sky.db")) as db, db:
        db.execute(f"INSERT INTO clusters ({names}) VALUES ({marks})", values)
        db.execute("INSERT INTO intervals VALUES (1, 1, 1.0, 1000.0, 1000.0, NULL)")


def test_a_store_of_the_first_schema_keeps_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "MIGRATIONS", store_module.MIGRATIONS[:1])
        Store.open(tmp_path).close()
        put_old_cluster(tmp_path)
        assert rows(tmp_path, "clusters") == 1
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            rows(tmp_path)
    new = Store.open(tmp_path)
    assert new.notices == []
    assert new.cluster("train") == CLUSTER
    assert [(i.price, i.started) for i in new.intervals()] == [(1.0, 1000.0)]
    tracker = Tracker(new.database)
    tracker.record(refused(NOW))
    assert tracker.knowledge(NOW).block(HERE) is not None
    new.close()
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "MIGRATIONS", store_module.MIGRATIONS[:1])
        with pytest.raises(SkyStoreError, match="newer jupyter_sky"):
            Store.open(tmp_path)


# -- prices -----------------------------------------------------------------------------------


def test_last_price_of_a_place(tracker: Tracker) -> None:
    for at, usd in ((NOW, 0.5), (NOW + 10, 0.4), (NOW + 20, 0.6)):
        tracker.record(Observation("price", HERE, at, usd=usd))
    price = tracker.price(HERE, NOW + 15)
    assert price is not None and (price.usd, price.at) == (0.4, NOW + 10)
    assert tracker.price(NEXT, NOW + 15) is None
    assert tracker.price(replace(HERE, spot=False), NOW + 15) is None
    assert tracker.price(HERE, NOW - 1) is None
    assert tracker.prices(NOW + 99)[HERE].usd == 0.6


def test_price_of_a_region_is_the_mean_of_its_zones(tracker: Tracker) -> None:
    region = replace(HERE, zone="")
    tracker.record(Observation("price", HERE, NOW, usd=0.4))
    tracker.record(Observation("price", NEXT, NOW + 9, usd=0.6))
    found = tracker.price(region, NOW + 9)
    assert found is not None and (found.usd, found.at) == (0.5, NOW)
    tracker.record(Observation("price", region, NOW + 9, usd=0.9))
    assert tracker.price(region, NOW + 9).usd == 0.9  # type: ignore[union-attr]


def test_prices_are_thinned_and_the_last_ones_kept(tracker: Tracker, tmp_path: Path) -> None:
    for hour in range(24 * 30):
        tracker.record(Observation("price", HERE, NOW - 3600 * hour, usd=1 + hour))
    tracker.record(Observation("price", NEXT, NOW - 40 * DAY, usd=7))
    tracker.record(Observation("price", NEXT, NOW - 41 * DAY, usd=8))
    old = replace(HERE, zone="us-east-1c")
    tracker.record(Observation("price", old, NOW - 100 * DAY, usd=9))
    before = tracker.prices(NOW)
    tracker.compact(NOW)
    after = tracker.prices(NOW)
    assert after == {place: before[place] for place in (HERE, NEXT)}, "three months are too old"
    assert 48 + 12 <= rows(tmp_path, "spot_prices") <= 50 + 14


def test_prices_are_not_looked_at_again_until_there_are_new_ones(
    tracker: Tracker, tmp_path: Path
) -> None:
    tracker.record_prices({HERE: 0.5, NEXT: 0.6}, NOW)
    before = tracker.prices(NOW)
    statements: list[str] = []
    tracker._db._db.set_trace_callback(statements.append)
    other = another(tmp_path)
    other.record(Observation("launched", HERE, NOW, seconds=3))
    assert tracker.prices(NOW + 1) is before
    assert not [each for each in statements if "spot_prices" in each], (
        "no look at tens of thousands"
    )
    other.record_prices({HERE: 0.7}, NOW + 2)
    assert tracker.prices(NOW + 3)[HERE].usd == 0.7
    assert tracker.prices(NOW + 1)[HERE].usd == 0.5, "of a time before"
    other.record(Observation("price", NEXT, NOW + 4, usd=0.8))
    assert tracker.prices(NOW + 5)[NEXT].usd == 0.8
    assert tracker.prices(NOW + 6) is tracker.prices(NOW + 5)


# -- compaction -------------------------------------------------------------------------------


def history(seed: int) -> list[Observation]:
    """Half a year of a busy user's observations."""
    chosen, seen = random.Random(seed), []
    zones = [replace(HERE, zone=f"us-east-1{letter}") for letter in "abc"]
    for number in range(1500):
        at, place = NOW - chosen.expovariate(1 / (12 * DAY)), chosen.choice(zones)
        kind = chosen.choice(["launched", "launched", "refused", "preempted", "ended"])
        if kind == "refused":
            seen.append(replace(refused(at), place=place, why=str(number)))
        else:
            seen.append(Observation(kind, place, at, seconds=chosen.expovariate(1 / 7200)))
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_compaction_leaves_decisions_as_they_were(tmp_path: Path, seed: int) -> None:
    tracker = another(tmp_path)
    tracker.record(*history(seed))
    before, later = tracker.knowledge(NOW), tracker.knowledge(NOW + 3 * DAY)
    tracker.compact(NOW)
    assert rows(tmp_path) < 1500 * 0.7
    assert len(tracker.observations()) == rows(tmp_path)
    for known, again in (
        (before, tracker.knowledge(NOW)),
        (later, tracker.knowledge(NOW + 3 * DAY)),
    ):
        assert again.blocks == known.blocks
        for place in known.tallies:
            chance, life = known.chance(place), known.lifetime(place)
            assert again.chance(place).mean == pytest.approx(chance.mean, rel=1e-3)
            assert again.chance(place).seconds == pytest.approx(chance.seconds, rel=1e-3)
            assert again.lifetime(place).hours == pytest.approx(life.hours, rel=1e-3)


def test_the_store_stays_small(tmp_path: Path) -> None:
    """A year of a launch every quarter of an hour, compacted every day."""
    tracker, at = another(tmp_path), NOW
    for _ in range(20):
        tracker.record(
            *(Observation("launched", HERE, at + 900 * n, seconds=30) for n in range(96)),
            *(Observation("ended", HERE, at + 900 * n, seconds=600) for n in range(96)),
        )
        at += DAY
        tracker.compact(at)
    assert rows(tmp_path) <= 2 * 96 * 3 + 4
    assert tracker.knowledge(at).lifetime(HERE).machines == 96 * 20


def test_compaction_happens_once_a_day(tracker: Tracker, tmp_path: Path) -> None:
    old = [Observation("ended", HERE, NOW - 5 * DAY + n, seconds=60) for n in range(5)]
    tracker.compact(NOW)
    tracker.record(*old)
    tracker.compact(NOW + PERIOD - 1)
    another(tmp_path).compact(NOW + PERIOD - 1)
    assert rows(tmp_path) == 5
    another(tmp_path).compact(NOW + PERIOD)
    assert rows(tmp_path) == 1


# -- clearing ---------------------------------------------------------------------------------


def test_clearing_by_words(tracker: Tracker) -> None:
    tracker.record(refused(NOW), refused(NOW, "quota"))
    tracker.record(replace(refused(NOW), place=Place("gcp", "us-west1", "", "n2-standard-8")))
    assert len(tracker.knowledge(NOW).blocks) == 3
    with pytest.raises(SkyUsageError, match=r"did you mean .*us-east-1a"):
        tracker.clear(["us-east-1z"], NOW)
    (gone,) = tracker.clear(["aws", "us-east-1a"], NOW)
    assert gone.cause == "capacity"
    shown = str(tracker.knowledge(NOW).blocks[0].scope)
    assert shown == "aws us-east-1 family g spot"
    assert len(tracker.clear([shown], NOW)) == 1, "what the table shows can be copied"
    assert [block.scope.cloud for block in tracker.clear([], NOW)] == ["gcp"]
    assert tracker.knowledge(NOW).blocks == () and tracker.clear([], NOW) == ()
    with pytest.raises(SkyUsageError, match="nothing is blocked"):
        tracker.clear(["aws"], NOW)
    tracker.record(refused(NOW + 60))
    assert tracker.knowledge(NOW + 60).blocks[0].times == 1
