"""Lifetimes as data: what is read, what is refused, how they are split."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes import Lifetimes, google_2019
from jupyter_sky.knowledge.tracker import Observation, Place

HEAD = "vm,batch_id,vm_type,vcpus,zone,launched_at,lifetime_h,end_kind,workload\n"
ROW = "vm1,b1,n1-highcpu-4,4,us-east1-b,2019-03-01T00:00:00Z,{},{},busy\n"


def test_the_shipped_data_are_whole() -> None:
    seen = google_2019()
    assert len(seen) == 998 and len(np.unique(seen.batch)) == 159
    assert seen.events.sum() + seen.capped.sum() + (~seen.preempted).sum() == 998
    assert not (seen.capped & ~seen.preempted).any(), "owners stopped theirs before the cap"
    assert seen.hours[seen.events].max() < 24 <= seen.hours[seen.capped].min()
    assert seen.kinds(20) == [f"n1-highcpu-{n}" for n in (2, 4, 8, 16, 32, 64)]


@pytest.mark.parametrize("hours", [-1.0, math.nan, math.inf, 25.01])
def test_invalid_lifetimes_are_refused(hours: float) -> None:
    with pytest.raises(SkyUsageError, match=f"{hours:g}") as caught:
        Lifetimes.of([1.0, hours], [True, True])
    assert caught.value.hint
    if hours > 24 and hours < math.inf:
        assert len(Lifetimes.of([1.0, hours], [True, True], cap=math.inf)) == 2


def test_no_lifetimes_and_ragged_columns_are_refused() -> None:
    with pytest.raises(SkyUsageError, match="no lifetimes"):
        Lifetimes.of([], [])
    with pytest.raises(SkyUsageError, match="2 lifetimes, but 1 of preempted"):
        Lifetimes.of([1.0, 2.0], [True])
    with pytest.raises(SkyUsageError, match="cap"):
        Lifetimes.of([1.0], [True], cap=-3.0)


def test_a_file_is_read_by_its_name_or_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "any.csv"
    file.write_text(HEAD + ROW.format(0.25, "preempted") + ROW.format(3, "user_stop"))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for path in (file, tmp_path, str(tmp_path)):
        seen = Lifetimes.read(path)
        assert seen.hours.tolist() == [0.25, 3.0] and seen.preempted.tolist() == [True, False]
        assert seen.kind[0] == "n1-highcpu-4" and seen.vcpus[0] == 4 and seen.batch[1] == "b1"


@pytest.mark.parametrize(
    "rows, said",
    [("", "no rows"), (ROW.format(1, "lost"), "line 2.*lost"), (ROW.format("x", "preempted"), "x")],
)
def test_malformed_file_is_refused(tmp_path: Path, rows: str, said: str) -> None:
    (tmp_path / "bad.csv").write_text(HEAD + rows)
    with pytest.raises(SkyUsageError, match=said):
        Lifetimes.read(tmp_path)


def test_a_folder_without_lifetimes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SkyUsageError, match="0 CSV files"):
        Lifetimes.read(tmp_path)


def test_folds_keep_batches_whole_and_cover_all_machines() -> None:
    seen, judged = google_2019(), 0
    for fit, judge in seen.folds(5, seed=3):
        assert not set(fit.batch) & set(judge.batch)
        assert len(fit) + len(judge) == len(seen)
        assert abs(len(judge) - len(seen) / 5) < 3
        judged += len(judge)
    assert judged == len(seen)
    first = [judge.hours.tolist() for _, judge in seen.folds(5, seed=3)]
    assert first == [judge.hours.tolist() for _, judge in seen.folds(5, seed=3)]
    with pytest.raises(SkyUsageError, match="5 folds of 1 batches"):
        next(Lifetimes.of([1.0, 2.0], [True, True], batch=["a", "a"]).folds())


def test_a_sample_holds_whole_batches() -> None:
    seen = google_2019()
    sizes = dict(zip(*np.unique(seen.batch, return_counts=True), strict=True))
    names, counts = np.unique(seen.resampled(np.random.default_rng(1)).batch, return_counts=True)
    assert all(count % sizes[name] == 0 for name, count in zip(names, counts, strict=True))
    assert 80 < len(names) < 120, "about 63 % of the batches are drawn"


def test_observations_become_lifetimes() -> None:
    place = Place("aws", "us-east-1", "us-east-1a", "m5.large", spot=True)
    seen = [
        Observation("preempted", place, 0.0, seconds=5400.0),
        Observation("ended", place, 0.0, seconds=7200.0, events=3),
        Observation("launched", place, 0.0, seconds=40.0),
    ]
    found = Lifetimes.observed(seen)
    assert found.hours.tolist() == [1.5, 2.0, 2.0, 2.0]
    assert found.preempted.tolist() == [True, False, False, False] and found.cap == math.inf
