"""Time estimators: the ready ones, and what is said of bad ones."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.store.store import ClusterRow, RunRow, Store
from jupyter_sky.decisions.optimizer import estimators

V100 = Offer("aws", "", "p3.8xlarge", 32, 244, gpu="V100", gpu_count=4)
CPUS = Offer("gcp", "", "n2-standard-8", 8, 32)


def test_flops_uses_all_accelerators_and_the_peak_of_the_registry() -> None:
    one = estimators.flops(125 * 3600 * 4)(V100)
    assert one == pytest.approx(1.0)
    assert estimators.flops(125 * 3600 * 4, utilisation=0.5)(V100) == pytest.approx(2.0)
    assert estimators.flops(1.0, cpu_tflops=1 / 3600 / 8)(CPUS) == pytest.approx(1.0)


def test_flops_rules_out_what_has_no_such_rate() -> None:
    k80 = Offer("aws", "", "p2.xlarge", 4, 61, gpu="K80", gpu_count=1)
    assert estimators.flops(1.0, "fp8")(k80) == math.inf
    with pytest.raises(SkyUsageError, match="precision"):
        estimators.flops(1.0, "fp12")
    for bad in ({"tflop": 0}, {"tflop": 1, "utilisation": 1.5}, {"tflop": -1}):
        with pytest.raises(SkyUsageError, match="flops"):
            estimators.flops(**bad)


def test_table_takes_the_most_specific_name() -> None:
    times = estimators.table(
        {"p3.8xlarge": 1, "nvidia-v100:4": 2, "V100": timedelta(hours=3), "aws": "4h", "gcp": 5}
    )
    assert times(V100) == 1
    assert times(Offer("azure", "", "NC24", 24, 448, gpu="V100", gpu_count=4)) == 2
    assert times(Offer("azure", "", "NC6", 6, 112, gpu="V100", gpu_count=1)) == 3
    assert times(Offer("aws", "", "m5.large", 2, 8)) == 4 and times(CPUS) == 5
    assert times(Offer("azure", "", "D8", 8, 32)) == math.inf


def test_amdahl_has_its_two_limits() -> None:
    assert estimators.amdahl(8)(CPUS) == 1.0
    assert estimators.amdahl(8, serial=1)(CPUS) == 8.0
    with pytest.raises(SkyUsageError, match="serial"):
        estimators.amdahl(8, serial=1.1)


def run(store: Store, number: int, name: str, kind: str, hours: float, status: str = "ok") -> None:
    cluster = f"c-{kind}"
    store.save_cluster(
        ClusterRow(
            **{"name": cluster, "state": "up", "cloud": "aws", "region": "us-east-1"},
            **{"instance_type": kind, "spot": False, "price": 1.0, "nodes": 1, "resources": ""},
            **{"offer": {}, "machines": [], "connection": {}, "notebook": "n", "created": 1.0},
            **{"idle": 60.0, "price_source": "", "price_date": ""},
        )
    )
    store.begin_run(
        RunRow(
            **{"run_id": f"r{number}", "notebook": "n", "session": "s", "cell": number},
            **{"name": name, "cluster": cluster, "code": "", "price": 1.0, "nodes": 1},
            **{"started": 0.0, "ended": None, "last_beat": 0.0, "status": "running"},
            **{"shown": 0},
        )
    )
    store.end_run(f"r{number}", status, hours * 3600)


def test_measured_is_the_median_of_what_the_ledger_has(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for number, hours in enumerate((2.0, 3.0, 10.0)):
        run(store, number, "train", "p3.8xlarge", hours)
    run(store, 3, "train", "m5.large", 50.0)
    run(store, 4, "train", "p3.8xlarge", 0.1, "error")
    run(store, 5, "other", "p3.8xlarge", 7.0)
    times = estimators.measured("train", store)
    assert times(V100) == pytest.approx(3.0) and times.runs == 4
    assert times(CPUS) == pytest.approx(26.5), "elsewhere the median over all"
    fallback = estimators.measured("train", store, otherwise=lambda offer: 9.0)
    assert fallback(CPUS) == 9.0 and fallback(V100) == pytest.approx(3.0)
    with pytest.raises(SkyUsageError) as caught:
        estimators.measured("trane", store)
    assert "no run called 'trane'" in caught.value.message and "train" in str(caught.value.hint)


def broken(offer: Offer) -> float:
    return {"A100": 1.0}[offer.gpu or ""]


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (broken, "raised KeyError: 'V100'"),
        (lambda offer: math.nan, "gave nan is not a time"),
        (lambda offer: -2.0, "gave -2.0 is not a time"),
        (lambda offer: "soon", "not a duration"),
        (lambda offer: None, "gave None is not a time"),
    ],
)
def test_a_bad_estimator_is_named_with_its_task_and_machine(estimator, said: str) -> None:
    with pytest.raises(SkyUsageError) as caught:
        estimators.estimate_hours(estimator, V100, "train")
    assert "task train" in caught.value.message and said in caught.value.message
    assert "aws p3.8xlarge (V100:4)" in caught.value.message


def test_valid_results_of_estimators() -> None:
    for value in (1.5, "90m", timedelta(minutes=90)):
        assert estimators.estimate_hours(lambda offer, v=value: v, V100, "x") == 1.5
    assert estimators.estimate_hours(lambda offer: math.inf, V100, "x") == math.inf
