"""Costs, from rows of a real store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from jupyter_sky.base.store.store import ClusterRow, RunRow, Store
from jupyter_sky.knowledge.ledger.ledger import Ledger, cost, format_usd, sum_usd
from jupyter_sky.knowledge.ledger.lines import LedgerLine, split_days

HOUR = 3600.0
NOON = datetime(2026, 3, 10, 12).timestamp()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path)
    yield store
    store.close()


def put_cluster(
    store: Store,
    name: str,
    price: float | None,
    at: float = NOON,
    notebook: str = "a.ipynb",
    cloud: str = "aws",
    offer: dict | None = None,
    connection: dict | None = None,
) -> ClusterRow:
    row = ClusterRow(
        name=name,
        state="up",
        cloud=cloud,
        region="us-east-1",
        instance_type="m5.large",
        spot=False,
        price=price,
        nodes=1,
        resources="",
        offer=offer or {},
        machines=[],
        connection=connection or {},
        notebook=notebook,
        created=at,
        idle=600.0,
        price_source=f"{cloud} catalog",
        price_date="2026-03-01",
    )
    store.save_cluster(row)
    store.begin_interval(store.cluster(name).id, price, at)
    return row


def put_run(
    store: Store, run_id: str, cluster: str, price: float | None, start: float, end: float | None
) -> RunRow:
    row = RunRow(
        run_id=run_id,
        notebook="a.ipynb",
        session="s",
        cell=int(run_id[1:]),
        name=None,
        cluster=cluster,
        code="",
        price=price,
        nodes=1,
        started=start,
        ended=None,
        last_beat=start,
        status="running",
        shown=0,
    )
    store.begin_run(row)
    if end is None:
        return row
    store.end_run(run_id, "ok", end)
    return replace(row, ended=end, status="ok")


def by_name(lines: list[LedgerLine]) -> dict[str, float | None]:
    return {line.what: line.usd for line in lines}


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (None, "unknown"),
        (0.0, "$0.00"),
        (0.03, "$0.03"),
        (1.239, "$1.24"),
        (1234.5, "$1,234.50"),
        (0.01, "$0.01"),
        (0.00999, "$0.01"),
        (0.0099, "$0.0099"),
        (0.0004, "$0.0004"),
        (0.000423, "$0.00042"),
        (2.7e-7, "<$0.000001"),
        (-0.5, "-$0.50"),
    ],
)
def test_format_usd(usd: float | None, text: str) -> None:
    assert format_usd(usd) == text


def test_format_usd_shows_zero_only_for_zero() -> None:
    for exponent in range(-12, 4):
        for mantissa in (1.0, 4.4, 9.49, 9.96, 9.9999):
            assert format_usd(mantissa * 10.0**exponent).strip("<$0.,") != ""


def test_unknown_price_makes_a_sum_unknown() -> None:
    assert sum_usd([1.0, 2.0]) == 3.0
    assert sum_usd([1.0, None, 2.0]) is None
    assert cost(None, 10) is None
    assert cost(3.6, -5) == 0.0


def test_cluster_costs_its_intervals_at_their_prices(store: Store) -> None:
    put_cluster(store, "c", 1.0)
    store.change_price(store.cluster("c").id, 3.0, NOON + HOUR)
    ledger = Ledger(store)
    assert ledger.cluster_usd("c", NOON + 1.5 * HOUR) == pytest.approx(2.5)
    store.end_cluster(store.cluster("c").id, "down", NOON + 2 * HOUR)
    assert ledger.cluster_usd("c", NOON + 50 * HOUR) == pytest.approx(4.0)
    assert ledger.cluster_usd("unheard of") == 0.0


def test_run_costs_the_price_at_which_it_began(store: Store) -> None:
    run = put_run(store, "r1", "elsewhere", 2.0, NOON, NOON + 900)
    unknown = put_run(store, "r2", "elsewhere", None, NOON, NOON + 900)
    going_on = put_run(store, "r3", "elsewhere", 2.0, NOON, None)
    ledger = Ledger(store)
    assert ledger.run_usd(run) == pytest.approx(0.5)
    assert ledger.run_usd(unknown) is None
    assert ledger.run_usd(going_on, NOON + 1800) == pytest.approx(1.0)


def test_run_follows_a_price_change_meanwhile(store: Store) -> None:
    put_cluster(store, "c", 1.0)
    run = put_run(store, "r1", "c", 1.0, NOON, NOON + 2 * HOUR)
    store.change_price(store.cluster("c").id, 4.0, NOON + HOUR)
    assert Ledger(store).run_usd(run, NOON + 9 * HOUR) == pytest.approx(5.0)


def test_reused_name_starts_from_nothing(store: Store) -> None:
    put_cluster(store, "c", 1.0)
    store.end_cluster(store.cluster("c").id, "down", NOON + HOUR)
    put_cluster(store, "c", 1.0, at=NOON + 5 * HOUR)
    ledger = Ledger(store)
    assert ledger.cluster_usd("c", NOON + 7 * HOUR) == pytest.approx(2.0)
    # The summary speaks of the name, so of both.
    assert by_name(ledger.summary("cluster", now=NOON + 7 * HOUR)) == {"c": pytest.approx(3.0)}


def test_spend_is_added(store: Store) -> None:
    put_cluster(store, "c", 1.0)
    store.end_cluster(store.cluster("c").id, "down", NOON + HOUR)
    store.add_other_cost(store.cluster("c").id, "egress 10 GB", 0.9, NOON + 60)
    ledger = Ledger(store)
    assert ledger.cluster_usd("c") == pytest.approx(1.9)
    (line,) = ledger.summary("cloud")
    assert (line.what, line.usd, line.price) == ("aws", pytest.approx(1.9), 1.0)
    store.add_other_cost(store.cluster("c").id, "disk", None, NOON + 61)
    assert ledger.notebook_usd("a.ipynb") is None


def test_notebook_pays_for_its_clusters_and_for_its_runs_elsewhere(store: Store) -> None:
    put_cluster(store, "own", 1.0)
    put_cluster(store, "shared", 2.0, notebook="b.ipynb")
    put_run(store, "r1", "own", 1.0, NOON, NOON + HOUR)
    put_run(store, "r2", "shared", 2.0, NOON, NOON + HOUR)
    ledger, now = Ledger(store), NOON + 2 * HOUR
    assert ledger.notebook_usd("a.ipynb", now) == pytest.approx(2.0 + 2.0)
    assert ledger.notebook_usd("b.ipynb", now) == pytest.approx(4.0)
    assert by_name(ledger.summary("notebook", now=now)) == {
        "a.ipynb": pytest.approx(4.0),
        "b.ipynb": pytest.approx(4.0),
    }
    assert ledger.notebook_usd("c.ipynb", now) == 0.0


def test_summary_by_cluster_cloud_and_cell(store: Store) -> None:
    put_cluster(store, "c1", 1.0)
    put_cluster(store, "c2", 0.0, cloud="local")
    put_cluster(store, "c3", None, cloud="ssh")
    store.end_cluster(store.cluster("c1").id, "down", NOON + HOUR)
    put_run(store, "r1", "c1", 1.0, NOON, NOON + 1800)
    put_run(store, "r2", "c2", 0.0, NOON, None)
    ledger, now = Ledger(store), NOON + 2 * HOUR
    assert by_name(ledger.summary("cluster", now=now)) == {"c1": 1.0, "c2": 0.0, "c3": None}
    assert by_name(ledger.summary("cloud", now=now)) == {"aws": 1.0, "local": 0.0, "ssh": None}
    running, ended = ledger.summary("cell", now=now)
    assert (running.what, running.usd, running.estimated) == ("a.ipynb [2]", 0.0, True)
    assert (ended.what, ended.usd, ended.estimated) == ("a.ipynb [1]", 0.5, False)
    assert (ended.source, ended.date, ended.seconds) == ("aws catalog", "2026-03-01", 1800.0)


def test_cells_of_two_sessions_are_two_lines(store: Store) -> None:
    run = put_run(store, "r1", "c", 1.0, NOON, NOON + HOUR)
    again = replace(run, run_id="again", session="t", started=NOON + 2 * HOUR)
    store.begin_run(replace(again, ended=None, status="running"))
    store.end_run("again", "ok", NOON + 5 * HOUR)
    lines = Ledger(store).summary("cell")
    assert [(line.what, line.usd) for line in lines] == [("a.ipynb [1]", 3.0), ("a.ipynb [1]", 1.0)]


def test_summary_by_day_is_cut_at_midnight(store: Store) -> None:
    put_cluster(store, "c", 1.0)
    store.end_cluster(store.cluster("c").id, "down", NOON + 30 * HOUR)
    lines = Ledger(store).summary("day")
    assert [(line.what, line.usd) for line in lines] == [
        ("2026-03-11", pytest.approx(18.0)),
        ("2026-03-10", pytest.approx(12.0)),
    ]


def test_days_cover_a_stretch_without_gap() -> None:
    pieces = list(split_days(NOON, NOON + 1000 * HOUR))
    assert pieces[0][1] == NOON and pieces[-1][2] == NOON + 1000 * HOUR
    assert all(a[2] == b[1] for a, b in pairwise(pieces))
    assert list(split_days(NOON, NOON)) == [("2026-03-10", NOON, NOON)]


@pytest.mark.parametrize("seconds", [HOUR, 300.0])
def test_since_bills_only_what_came_after(store: Store, seconds: float) -> None:
    put_cluster(store, "old", 1.0)
    store.end_cluster(store.cluster("old").id, "down", NOON + 2 * HOUR - seconds)
    put_cluster(store, "now", 1.0)
    put_run(store, "r1", "now", 1.0, NOON, None)
    ledger, since, now = Ledger(store), NOON + 2 * HOUR, NOON + 3 * HOUR
    assert by_name(ledger.summary("cluster", since, now)) == {"now": pytest.approx(1.0)}
    assert by_name(ledger.summary("cell", since, now)) == {"a.ipynb [1]": pytest.approx(1.0)}
    assert by_name(ledger.summary("day", since, now)) == {"2026-03-10": pytest.approx(1.0)}


def test_empty_store_has_an_empty_bill(store: Store) -> None:
    assert all(Ledger(store).summary(by) == [] for by in ("notebook", "cell", "cluster", "day"))


@pytest.mark.parametrize("seed", range(20))
def test_cells_never_cost_more_than_their_cluster(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = Store.open(tmp_path)
    price = rng.uniform(0.01, 40)
    put_cluster(store, "c", price)
    at = NOON
    for n in range(rng.randrange(1, 12)):
        start = at + rng.expovariate(1 / 60)
        middle = start + rng.expovariate(1 / 300)
        put_run(store, f"r{n}", "c", price, start, None)
        if rng.random() < 0.5:
            price = rng.uniform(0.01, 40)
            store.change_price(store.cluster("c").id, price, middle)
        at = middle + rng.expovariate(1 / 300)
        store.end_run(f"r{n}", "ok", at)
    store.end_cluster(store.cluster("c").id, "down", at)
    ledger = Ledger(store)
    cells = sum_usd(ledger.run_usd(run) for run in store.runs(limit=None))
    whole = ledger.cluster_usd("c")
    assert cells is not None and whole is not None
    assert 0 < cells <= whole * (1 + 1e-9)
    by_day = sum_usd(line.usd for line in ledger.summary("day"))
    assert by_day == pytest.approx(whole)
    store.close()


@pytest.mark.parametrize(
    ("cloud", "seconds", "billed"),
    [("aws", 10.0, 60.0), ("aws", 90.4, 91.0), ("verda", 601.0, 1200.0), ("ssh", 10.5, 10.5)],
)
def test_clouds_bill_whole_units_and_a_least_time(
    store: Store, cloud: str, seconds: float, billed: float
) -> None:
    put_cluster(store, "short", 3.6, cloud=cloud)
    store.end_cluster(store.cluster("short").id, "down", NOON + seconds)
    ledger = Ledger(store)
    assert ledger.cluster_usd("short", NOON + HOUR) == pytest.approx(billed * 0.001)
    (line,) = ledger.summary("cloud", now=NOON + HOUR)
    assert line.seconds == pytest.approx(billed)
    assert line.usd == pytest.approx(billed * 0.001)


def test_cell_cost_ignores_the_minimum_billing_time(
    store: Store,
) -> None:
    put_cluster(store, "short", 3.6)
    run = put_run(store, "r1", "short", 3.6, NOON + 1, NOON + 6)
    store.end_cluster(store.cluster("short").id, "down", NOON + 10)
    assert Ledger(store).run_usd(run, NOON + HOUR) == pytest.approx(5 * 0.001)


def test_the_surcharge_of_a_service_has_a_line_of_its_own(store):
    # a session counts as one node here, and was launched for three
    offer, session = {"price": 0.24, "surcharge": 0.048}, {"session_nodes": 3}
    row = put_cluster(store, "etl", 0.72, cloud="emr", offer=offer, connection=session)
    put_cluster(store, "train", 1.0, offer={"price": 1.0, "surcharge": 0.0})
    put_cluster(store, "rack", None, offer={"price": None})
    store.change_price(row.id, 0.48, NOON + HOUR)  # two nodes are left, of the same kind
    ledger = Ledger(store)
    lines = by_name(ledger.summary("cluster", now=NOON + 2 * HOUR))
    assert lines == {
        "etl": pytest.approx(0.72 - 0.144 + 0.48 - 0.096),
        "etl, surcharge of emr": pytest.approx(0.144 + 0.096),
        "train": 2.0,
        "rack": None,
    }
    whole = ledger.cluster_usd("etl", now=NOON + 2 * HOUR)
    assert whole == pytest.approx(1.2)
    assert lines["etl"] + lines["etl, surcharge of emr"] == pytest.approx(whole, abs=1e-12)
    assert by_name(ledger.summary("cloud", now=NOON + 2 * HOUR))["emr"] == pytest.approx(1.2)
