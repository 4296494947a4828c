"""Spent, expected and saved costs: pure functions over rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.store.store import ClusterRow, IntervalRow, RunRow, SpendRow
from jupyter_sky.knowledge.ledger.baseline import (
    BASELINE_KEY,
    Baseline,
    PendingBaseline,
    measure_baseline,
)
from jupyter_sky.knowledge.ledger.forecast import (
    CostSum,
    forecasts,
    local_day,
    rate,
    remaining,
    savings,
    spent_between,
    total_savings,
)

HOUR = 3600.0
NOON = datetime(2026, 3, 10, 12).timestamp()


def cluster(name: str = "train", price: float | None = 1.0, **more: Any) -> ClusterRow:
    values = dict(
        name=name,
        state="up",
        cloud="azure",
        region="westeurope",
        instance_type="D4s",
        spot=False,
        price=price,
        nodes=1,
        resources="",
        offer={},
        machines=[],
        connection={},
        notebook="a.ipynb",
        created=NOON,
        idle=600.0,
        price_source="list",
        price_date="2026-03-01",
    )
    return ClusterRow(**(values | more))  # type: ignore[arg-type]


def interval(
    name: str = "train",
    price: float | None = 1.0,
    start: float = NOON,
    end: float | None = None,
    cloud: str = "azure",
) -> IntervalRow:
    return IntervalRow(name, NOON, "a.ipynb", cloud, price, start, start, end, "list", "2026-03-01")


def run(number: int, start: float, end: float | None = None, **more: Any) -> RunRow:
    values = dict(
        run_id=f"r{number}",
        notebook="a.ipynb",
        session="s",
        cell=number,
        name=None,
        cluster="train",
        code="train()",
        price=1.0,
        nodes=1,
        started=start,
        ended=end,
        last_beat=start,
        status="running" if end is None else "ok",
        shown=0,
    )
    return RunRow(**(values | more))  # type: ignore[arg-type]


# -- what was spent --------------------------------------------------------------------------------


prices = st.one_of(st.none(), st.just(0.0), st.floats(0.01, 50))
stretches = st.lists(
    st.tuples(
        prices,
        st.floats(-60 * HOUR, 60 * HOUR),
        st.one_of(st.just(0.0), st.floats(1, 50 * HOUR)),
    ),
    max_size=6,
)


@given(stretches, st.sampled_from(["azure", "aws", "verda", "ssh"]))
def test_days_add_up_to_the_whole_and_what_is_unknown_is_named(stretches, cloud) -> None:
    rows = [
        interval(f"c{number}", price, NOON + start, NOON + start + lasted, cloud)
        for number, (price, start, lasted) in enumerate(stretches)
    ]
    extra = [SpendRow("c0", "a", cloud, "egress", 0.25, NOON + 5 * HOUR)]
    now = NOON + 200 * HOUR
    whole = spent_between(rows, extra, now, NOON - 200 * HOUR, now)
    parts, begin = CostSum(), NOON - 200 * HOUR
    while begin < now:
        _, _, midnight = local_day(begin)
        parts += spent_between(rows, extra, now, begin, min(midnight, now))
        begin = midnight
    assert parts.usd == pytest.approx(whole.usd)
    assert set(parts.unknown) == set(whole.unknown)
    lasting = [(f"c{n}", price) for n, (price, _, lasted) in enumerate(stretches) if lasted]
    assert set(whole.unknown) == {name for name, price in lasting if price is None}
    assert not whole.estimated, "all has ended"


@pytest.mark.parametrize(
    ("moment", "hours"),
    [
        (datetime(2026, 3, 29, 12), 23),
        (datetime(2026, 10, 25, 1), 25),
        (datetime(2026, 10, 25, 23), 25),
        (datetime(2026, 7, 1, 12), 24),
    ],
)
def test_a_day_is_the_local_one_also_when_clocks_change(monkeypatch, moment, hours) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        name, first, last = local_day(moment.timestamp())
        assert (last - first) / HOUR == hours and name == moment.date().isoformat()
        assert datetime.fromtimestamp(first).hour == datetime.fromtimestamp(last).hour == 0
        assert local_day(last)[1] == last and local_day(last - 1)[0] == name
        row = interval("c", 2.0, first - 5 * HOUR, last + 5 * HOUR)
        assert spent_between([row], [], last + 9 * HOUR, first, last).usd == pytest.approx(
            2.0 * hours
        )
    finally:
        monkeypatch.undo()
        time.tzset()


def test_running_costs_are_estimates_except_free_machines() -> None:
    going_on, free = interval("a", 2.0), interval("b", 0.0)
    assert spent_between([going_on], [], NOON + HOUR, NOON, NOON + 9 * HOUR) == CostSum(
        2.0, (), True
    )
    assert spent_between([free], [], NOON + HOUR, NOON, NOON + 9 * HOUR) == CostSum(0.0, (), False)
    assert spent_between([going_on], [], NOON + HOUR, NOON + 2 * HOUR, NOON + 9 * HOUR) == CostSum()
    hidden = SpendRow("a", "n", "azure", "egress", None, NOON)
    assert spent_between([], [hidden], NOON + HOUR, NOON, NOON + HOUR).unknown == ("a",)


def test_rate_names_what_it_does_not_know() -> None:
    rows = [interval("a", 2.0), interval("b", None), interval("c", 3.0, end=NOON + 1)]
    assert rate(rows) == CostSum(2.0, ("b",))
    assert str(rate(rows)) == "$2.00 + unknown (b)"


# -- what is to come -------------------------------------------------------------------------------


def ahead(running, earlier=(), now=NOON + 600, **more):
    (found,) = forecasts([cluster(**more)], [interval(**more)], running, earlier, now)
    return found


def test_forecast_from_earlier_runs_of_the_same_code_and_the_idle_limit() -> None:
    earlier = [run(n, NOON - n * HOUR, NOON - n * HOUR + took) for n, took in ((2, 900), (3, 1500))]
    failed = replace(run(4, NOON - HOUR, NOON - HOUR + 5), status="error")
    other = run(5, NOON - HOUR, NOON - HOUR + 5, code="else()")
    found = ahead([run(1, NOON)], [failed, other, *earlier])
    # the median of 900 and 1500 s, of which 600 have passed; then 10 minutes
    assert found.ends == NOON + 1200 + 600
    assert found.usd == pytest.approx((1800 - 600) / HOUR)
    assert "2 earlier runs took 20:00" in found.basis and "idle limit of 10:00" in found.basis


def test_forecast_by_the_time_allowed_and_unknown_without_either() -> None:
    allowed = ahead([run(1, NOON, allowed=1000.0)])
    assert allowed.ends == NOON + 1000 + 600 and "as it may take 16:40" in allowed.basis
    unknown = ahead([run(1, NOON)])
    assert (unknown.usd, unknown.ends) == (None, None) and "end is not known" in unknown.basis
    late = ahead([run(1, NOON)], [run(2, NOON - HOUR, NOON - HOUR + 60)])
    assert late.usd is None and "longer than" in late.basis
    free = forecasts([cluster(price=0.0)], [interval(price=0.0)], [run(1, NOON)], [], NOON + 600)
    assert free[0].usd == 0.0, "whenever it ends, it costs nothing"


def test_cells_side_by_side_and_one_that_waits() -> None:
    beside = [run(1, NOON, allowed=1000.0), run(2, NOON, allowed=2000.0)]
    assert ahead(beside).ends == NOON + 2000 + 600
    waits = run(3, NOON + 1, allowed=500.0, stage="queued")
    assert ahead([*beside, waits]).ends == NOON + 2000 + 500 + 600


def test_kept_cluster_costs_until_its_extended_end() -> None:
    row = cluster(kept=NOON + 7200)
    (found,) = forecasts([row], [interval()], [], [], NOON + 600)
    assert found.ends == NOON + 7200 and found.usd == pytest.approx(6600 / HOUR)
    assert "kept" in found.basis


def test_forecast_of_an_idle_cluster_pays_begun_units_in_full() -> None:
    found = ahead([], now=NOON + 650, cloud="verda")
    # 1250 s in all make three units of ten minutes, of which two were begun already
    assert found.usd == pytest.approx((1800 - 1200) / HOUR)
    assert "no cell runs" in found.basis and "from its last use" in found.basis
    assert ahead([], price=None).usd is None and "price is not known" in ahead([], price=None).basis


@given(
    st.floats(0, 1e5),
    st.lists(st.floats(0, 1e5), max_size=8),
    st.one_of(st.none(), st.floats(0, 1e5)),
)
def test_remaining_cost_lies_between_zero_and_the_limit(elapsed, lasted, limit) -> None:
    left, why = remaining(elapsed, lasted, limit)
    assert why
    if left is None:
        assert limit is None and all(seconds <= elapsed for seconds in lasted)
    else:
        assert left >= 0
        assert limit is None or left <= max(0.0, limit - elapsed) + 1e-9


# -- what was saved --------------------------------------------------------------------------------


def recorded(on_demand: float | None, default: float | None, why: str = "") -> dict[str, Any]:
    return {
        BASELINE_KEY: Baseline(on_demand, default, "aws us-east-1 x", "list", "2026", why).to_dict()
    }


def test_savings_by_spot_and_by_placement_are_separate() -> None:
    row = cluster(price=0.3, spot=True, connection=recorded(1.0, 1.5))
    bill = [interval(price=0.3, end=NOON + HOUR), interval(price=0.5, start=NOON + HOUR)]
    (found,) = savings([row], bill, NOON + 2 * HOUR, NOON)
    assert found.paid == pytest.approx(0.8)
    assert (found.spot, found.placement) == (pytest.approx(1.2), pytest.approx(1.0))
    assert found.usd == pytest.approx(2 * 1.5 - 0.8) and found.estimated
    assert "$1.50/h (list, 2026)" in found.against
    (late,) = savings([row], bill, NOON + 2 * HOUR, NOON + 1.5 * HOUR)
    assert late.paid == pytest.approx(0.25) and late.spot == pytest.approx(0.25)
    assert savings([row], bill, NOON + 2 * HOUR, NOON + 3 * HOUR) == []


def test_on_demand_saves_nothing_by_spot_and_a_dear_place_is_a_loss() -> None:
    row = cluster(price=2.0, connection=recorded(2.0, 1.5))
    (found,) = savings([row], [interval(price=2.0, end=NOON + HOUR)], NOON + HOUR, NOON)
    assert (found.spot, found.placement, found.usd) == (0.0, -0.5, -0.5)


def test_nothing_is_imagined() -> None:
    own = cluster("own", 0.0, cloud="local")
    old = cluster("old")
    elsewhere = cluster("eu", spot=True, connection=recorded(3.0, None, "the request is for eu"))
    bill = [interval(row.name, row.price, end=NOON + HOUR) for row in (own, old, elsewhere)]
    found = {one.cluster: one for one in savings([own, old, elsewhere], bill, NOON + HOUR, NOON)}
    assert found["own"].own and found["own"].usd is None
    assert found["old"].placement is None and "before default choices" in found["old"].against
    assert found["eu"].spot == pytest.approx(2.0) and found["eu"].placement is None
    spot, placement = total_savings(found.values())
    assert spot == CostSum(2.0) and placement == CostSum(0.0, ("old", "eu"))


@given(
    st.floats(0.01, 50), st.floats(0.01, 50), st.floats(0.01, 50), st.floats(0.1, 48), st.booleans()
)
def test_paid_and_saved_are_what_the_default_choice_would_have_cost(
    price, on_demand, default, hours, spot
) -> None:
    row = cluster(price=price, spot=spot, connection=recorded(on_demand, default))
    bill = [interval(price=price, end=NOON + hours * HOUR)]
    (found,) = savings([row], bill, NOON + 99 * HOUR, NOON)
    assert found.usd is not None and found.paid is not None
    lasted = -(-round(hours * HOUR, 6) // 1) / HOUR  # azure bills whole seconds
    assert found.usd + found.paid == pytest.approx(default * lasted, rel=1e-3)


# -- the default choice ----------------------------------------------------------------------------


def test_default_choice_of_a_request() -> None:
    from jupyter_sky.knowledge.catalog import load

    need = Resources.parse(cpus="4+", memory="16+", spot=True, cloud="gcp", nodes=2)
    offer = load().filter(need).head(1).offers()[0]
    found = measure_baseline(need, offer)
    assert found is not None and found.default is not None and found.on_demand is not None
    assert found.place.startswith("2 x aws us-east-1 ") and found.source and found.date
    plain = load().filter(cpus="4+", memory="16+", spot=False, cloud="aws", region="us-east-1")
    assert found.default == pytest.approx(2 * (plain.head(1).offers()[0].price or 0))
    same = load().filter(
        cloud="gcp", region=offer.region, instance_type=offer.instance_type, spot=False
    )
    assert found.on_demand == pytest.approx(2 * (same.head(1).offers()[0].price or 0))
    assert offer.price is not None and found.on_demand > 2 * offer.price


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"region": "eu"}, "for eu"),
        ({"region": "europe-west4"}, "names the region europe-west4"),
        ({"jurisdiction": "eu"}, "sells nothing"),
        ({"instance_type": "e2-standard-4"}, "sells nothing"),
    ],
)
def test_no_default_choice_where_the_request_cannot_be_met_there(labels, why) -> None:
    offer = Offer("gcp", "europe-west4", "e2-standard-4", 4, 16, price=0.1)
    found = measure_baseline(Resources.parse(**labels), offer)
    assert found is not None and found.default is None and why in found.why
    assert found.on_demand == 0.1


def test_own_machines_are_measured_only_when_they_have_a_price() -> None:
    assert PendingBaseline(Resources(), Offer("ssh", "rack", "box", 2, 8, price=0.0))() == {}
    priced = PendingBaseline(
        Resources.parse(cpus="2+"), Offer("ssh", "rack", "box", 2, 8, price=0.01)
    )()
    assert priced[BASELINE_KEY]["default"] > 0 and priced[BASELINE_KEY]["on_demand"] == 0.01
