"""The bill: it adds up, it marks what it does not know, and it goes into files."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.store.store import Store
from jupyter_sky.knowledge.ledger.report import (
    GROUPINGS,
    CostReport,
    make_report,
    parse_by,
    parse_since,
)
from tests.ledger.test_ledger import put_cluster, put_run

HOUR = 3600.0
NOON = datetime(2026, 3, 10, 12).timestamp()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path)
    yield store
    store.close()


def filled(store: Store, seed: int = 1) -> float:
    """Clusters over some days, some of unknown price, some going on; returns the time."""
    rng, now = random.Random(seed), NOON + 60 * HOUR
    for number in range(12):
        name, start = f"c{number}", NOON + rng.uniform(0, 50) * HOUR
        price = rng.choice([0.0, 1.0, 2.5, 7.0])
        cloud = rng.choice(["aws", "gcp", "verda", "local"])
        put_cluster(store, name, price, start, rng.choice(["a.ipynb", "b.ipynb"]), cloud)
        middle = start + rng.uniform(0, 4) * HOUR
        if rng.random() < 0.3:
            store.change_price(store.cluster(name).id, 3.0, middle)
        put_run(store, f"r{number}", name, price, start + 60, middle)
        if rng.random() < 0.8:
            store.end_cluster(store.cluster(name).id, "down", middle + rng.uniform(0, 3) * HOUR)
        if rng.random() < 0.3:
            store.add_other_cost(store.cluster(name).id, "egress", 0.25, middle)
    return now


@pytest.mark.parametrize("seed", range(6))
def test_bill_does_not_depend_on_the_grouping(store: Store, seed: int) -> None:
    now = filled(store, seed)
    for since in (None, NOON + 20 * HOUR, NOON + 59 * HOUR):
        sums = {by: make_report(store, None, by, since, now) for by in ("cluster", "cloud", "day")}
        for bill in sums.values():
            assert bill.total.usd == pytest.approx(sum(line.usd or 0.0 for line in bill.lines))
    whole = make_report(store, None, "cluster", None, now)
    tail = make_report(store, None, "cluster", NOON + 20 * HOUR, now)
    assert tail.total.usd < whole.total.usd


def test_report_as_json_marks_unknown_amounts(store: Store) -> None:
    put_cluster(store, "train", 2.0)
    put_cluster(store, "rack", None, cloud="ssh")
    put_run(store, "r1", "train", 2.0, NOON, None)
    for by in GROUPINGS:
        bill = make_report(store, "a.ipynb", by, None, NOON + HOUR)
        told = json.loads(json.dumps(bill.to_dict(), allow_nan=False))
        assert told["today"] == {"usd": 2.0, "unknown": ["rack"], "estimated": True}
        assert told["forecast"]["unknown"] == ["train", "rack"], "of neither is the end known"
        text = " ".join(f"{name} {value}" for name, value in bill.headline)
        assert "unknown (rack)" in text and "$2.00 est. + unknown (rack)" in text
    assert "rack" in " ".join(bill.notes)
    assert "As of 2026-03-10 13:00:00." in bill.notes


def test_cells_are_those_of_the_notebook_that_asks(store: Store) -> None:
    put_cluster(store, "own", 1.0)
    put_run(store, "r1", "own", 1.0, NOON, NOON + HOUR)
    now = NOON + 2 * HOUR
    assert [line.what for line in make_report(store, "a.ipynb", now=now).lines] == ["a.ipynb [1]"]
    assert (
        make_report(store, "a", now=now).lines == () == make_report(store, "b.ipynb", now=now).lines
    )
    assert len(make_report(store, None, now=now).lines) == 1
    assert make_report(store, "a.ipynb", now=now).notebook_rate == 1.0
    assert make_report(store, "b.ipynb", now=now).notebook_rate == 0.0


def test_csv_is_exact_and_marks_unknown_amounts(store: Store) -> None:
    put_cluster(store, "=cmd()", 0.000123)
    put_cluster(store, "rack", None, cloud="ssh")
    store.end_cluster(store.cluster("=cmd()").id, "down", NOON + HOUR)
    bill = make_report(store, None, "cluster", None, NOON + 2 * HOUR)
    rows = list(csv.DictReader(io.StringIO(bill.to_csv())))
    assert [row["cluster"] for row in rows] == ["rack", "'=cmd()"]
    assert [row["usd"] for row in rows] == ["unknown", "0.000123"]
    assert [row["estimated"] for row in rows] == ["yes", "no"]
    began = datetime.fromisoformat(rows[0]["started"])
    assert began.timestamp() == NOON and began.tzinfo is not None
    assert bill.file_name == "sky-cost-by-cluster-2026-03-10.csv"


def test_a_long_table_is_cut_where_it_is_shown_and_whole_in_the_file(store: Store) -> None:
    put_cluster(store, "c", 1.0)
    for number in range(250):
        put_run(store, f"r{number}", "c", 1.0, NOON + number, NOON + number + 1)
    bill = make_report(store, None, "cell", None, NOON + HOUR)
    assert len(bill.to_dict()["lines"]) == 200 and bill.to_dict()["more"] == 50
    assert len(bill.to_csv().splitlines()) == 251


def test_options_of_reports_are_parsed() -> None:
    assert parse_since(None) is None is parse_since("all")
    assert parse_since("today", NOON) == NOON - 12 * HOUR
    assert parse_since("2h", NOON) == NOON - 2 * HOUR
    assert parse_since("2026-03-10") == NOON - 12 * HOUR
    assert parse_since("2026-03-10T12:00:00+00:00") is not None
    for bad in ("soon", "2026-13-01"):
        with pytest.raises(SkyUsageError, match="--since"):
            parse_since(bad)
    assert parse_by("day") == "day"
    with pytest.raises(SkyUsageError, match="colour") as caught:
        parse_by("colour")
    assert "cloud" in (caught.value.hint or "")


def test_an_empty_store_has_an_empty_bill(store: Store) -> None:
    bill: CostReport = make_report(store, "a.ipynb")
    assert bill.lines == () and bill.total.usd == 0.0 and bill.sources == []
    assert ("today, all notebooks", "$0.00") in bill.headline
    assert bill.to_csv().count("\n") == 1
