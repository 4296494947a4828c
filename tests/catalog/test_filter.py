"""Filters over the shipped catalog: facts that were looked up in its sources, and properties."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.decisions.optimizer.candidates import candidates

ANY = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])

amounts = st.builds(
    lambda value, more: f"{value}{'+' if more else ''}",
    st.sampled_from([1, 2, 4, 8, 16, 24, 40, 80, 96, 0.5, 180]),
    st.booleans(),
)
gpus = st.sampled_from(
    "A100:8 A100:4+ A100-80GB V100:1 V100:1+ T4:1 T4:2+ L4:0.5 tpu-v3-8 H100:8 Inferentia:1".split()
)
OPTIONAL = {
    "cpus": amounts,
    "memory": amounts,
    "gpus": gpus,
    "gpu_memory": amounts,
    "arch": st.sampled_from(["x86_64", "arm64"]),
    "cpu_vendor": st.sampled_from(["Intel", "AMD", "AWS", "Ampere"]),
    "cloud": st.sampled_from(["aws", "azure", "gcp", "aws,gcp", "lambda,vast", "verda"]),
    "region": st.sampled_from(["eu", "us", "uk", "eea", "us-east-1", "westeurope", "au", "BG"]),
    "zone": st.sampled_from(["us-east-1a", "us-central1-a", "europe-west4-b"]),
    "country": st.sampled_from(["de", "us", "gb", "in"]),
    "jurisdiction": st.sampled_from(["eu", "us", "eea", "ch"]),
    "instance_type": st.sampled_from(["c6i.4xlarge", "n2-standard-16", "Standard_D4s_v3"]),
    "image": st.just("python:3.12"),
    "intel_sgx": st.just(True),
    "service": st.sampled_from(["emr", "dataproc", "spark==3.5.*", "emr,spark<3", "hdinsight"]),
    "max_hourly_cost": st.sampled_from(["0.05", "0.5", "3", "30"]),
    "nodes": st.sampled_from([1, 2, 5]),
    "spot": st.just(True),
}


@st.composite
def requests(draw):
    """One to four labels, as many as leave a fair chance that something meets them all."""
    keys = draw(st.lists(st.sampled_from(sorted(OPTIONAL)), min_size=1, max_size=4, unique=True))
    labels = {key: draw(OPTIONAL[key]) for key in keys}
    if "spot" not in labels and draw(st.booleans()):
        labels["on_demand"] = True
    return Resources.parse(**labels)


@ANY
@given(need=requests(), seed=st.integers(0, 2**16))
def test_filters_let_nothing_through_that_breaks_a_label(shipped, need, seed):
    found = shipped.filter(need)
    ordered = found.sorted()
    sample = [*range(min(20, len(ordered)))]
    sample += [(seed * (i + 1)) % len(ordered) for i in range(20)] if len(ordered) else []
    for position in sample:
        (offer,) = ordered[position : position + 1].offers()
        assert need.unmet_labels(offer) == ()
        assert offer.price is None or offer.price >= 0


@pytest.fixture(scope="module")
def some(shipped):
    """Some thousand offers of all kinds, each with its row and market."""
    parts = [
        shipped.filter(**labels).sorted()
        for labels in (
            {"region": "us-west-1"},
            {"zone": "us-central1-a", "gpus": "T4:1+"},
            {"cloud": "verda,vast,nebius,lambda"},
            {"region": "de", "intel_sgx": True},
            {"gpus": "tpu-v3-8"},
        )
    ]
    return {
        (row, spot): offer
        for part in parts
        for row, spot, offer in zip(part.rows.tolist(), part.spot.tolist(), part, strict=True)
    }


@ANY
@given(need=requests())
def test_filters_leave_out_nothing_that_meets_every_label(shipped, some, need):
    """Offers taken one by one: the same as the columns say."""
    if need.service:
        return  # services are not on offer unless they are asked for
    expected = {key for key, offer in some.items() if need.satisfied_by(offer)}
    found = shipped.filter(need)
    assert expected == some.keys() & set(zip(found.rows.tolist(), found.spot.tolist(), strict=True))


@ANY
@given(need=requests(), count=st.integers(1, 60))
def test_the_head_is_the_beginning_of_the_whole(shipped, need, count):
    whole = shipped.filter(need).sorted()
    head = type(whole)(
        shipped, whole.rows, whole.spot, whole.price, service=whole.service, services=whole.services
    ).head(count)
    prices = [p for p in whole.price.tolist() if p == p]
    assert prices == sorted(prices)
    assert (head.rows == whole.rows[:count]).all() and (head.spot == whole.spot[:count]).all()


def test_order_is_that_of_the_optimizer(shipped):
    offers = shipped.filter(gpus="V100:1").offers()
    assert offers == candidates(Resources.parse(gpus="V100:1"), reversed(offers))


def test_the_cheapest_eight_a100_of_europe(shipped):
    spot, on_demand = (
        shipped.filter(gpus="A100:8", region="eu", **market).head(1).offers()[0]
        for market in ({"spot": True}, {"on_demand": True})
    )
    assert (spot.place, spot.price) == ("azure italynorth Standard_ND96asr_v4 spot", 3.88927)
    assert (spot.country, spot.jurisdiction, spot.date) == ("IT", "EU", "2024-08-09")
    assert (on_demand.place, on_demand.price) == ("lambda europe-central-1 gpu_8x_a100", 15.92)


@pytest.mark.parametrize(
    ("labels", "count"),
    [
        ({}, 276_799),
        ({"instance_type": "c6i.4xlarge"}, 172),
        ({"intel_sgx": True}, 880),
        ({"cloud": "runpod"}, 6),
        ({"gpus": "H100:16"}, 0),
        ({"region": "no-such-place"}, 0),
    ],
)
def test_counts(shipped, labels, count):
    assert len(shipped.filter(**labels)) == count


def test_a_choice_that_only_one_cloud_has(shipped):
    enclaves = shipped.filter(intel_sgx=True)
    assert set(enclaves.strings("cloud")) == {"azure"}
    types = set(enclaves.strings("instance_type"))
    assert {"Standard_DC4s_v3", "Standard_DC8ds_v3", "Standard_DC8_v2"} < types
    assert not any(name.endswith(("as_v5", "es_v5")) for name in types)  # SEV and TDX, not SGX


def test_government_regions_need_an_explicit_request(shipped):
    america = shipped.filter(region="us")
    assert not any("gov" in region for region in set(america.strings("region")))
    assert len(shipped.filter(region="us-gov-west-1")) > 0
    assert len(shipped.filter(jurisdiction="us-gov")) == len(shipped.filter(region="us-gov"))


def test_separately_sold_gpu_is_combined_with_its_machine(shipped):
    found = shipped.filter(gpus="V100:2", cloud="gcp", on_demand=True).offers()
    assert found and all(offer.instance_type == "n1-standard-16+V100:2" for offer in found)
    assert all(offer.vcpus == 16 and offer.memory == 60 for offer in found)
    (host,) = shipped.filter(
        instance_type="n1-standard-16", zone=found[0].zone, on_demand=True
    ).offers()
    assert found[0].price == pytest.approx(host.price + 2 * 2.48)
    assert "n1-attach/V100" not in shipped.filter(gpus="V100:1").strings("instance_type")


def test_both_markets_and_the_price_unknown(shipped):
    new = shipped.filter(cloud="aws", on_demand=True).sorted()
    assert math.isnan(new.price[-1]) and new[-1:].offers()[0].price is None
    both = shipped.filter(instance_type="m5.large", zone="us-east-1a").offers()
    assert [offer.spot for offer in both] == [True, False]
    assert both[0].price < both[1].price


def test_spot_above_on_demand_is_flagged_and_never_offered_silently(shipped):
    table = shipped.offers
    spot, listed = table.values("spot_usd_h"), table.values("on_demand_usd_h")
    assert ((spot > listed) == table.values("spot_above_on_demand")).all()
    assert (spot > listed).sum() == 19
    quiet, loud = shipped.filter(spot=True), shipped.filter(spot=True, flagged=True)
    assert (len(loud) - len(quiet), quiet.flagged, loud.flagged) == (19, 19, 0)
    assert not quiet.values("spot_above_on_demand").any()
    noted = [o for o in shipped.filter(gpus="L4:0.5", spot=True, flagged=True) if o.note]
    assert noted and {o.note for o in noted} == {"spot price above on-demand"}


def test_prices_are_never_negative(shipped):
    for name in ("on_demand_usd_h", "spot_usd_h"):
        values = shipped.offers.values(name)
        assert not (values < 0).any() and (values >= 0).any()


def test_every_accelerator_of_the_data_is_in_the_registry(shipped):
    from jupyter_sky.base.requests.accelerators import names

    assert set(shipped.offers.categories("accelerator")) - {""} <= set(names())


def test_repeated_request_is_cached(shipped):
    first = shipped.filter(cpus="4+", arch="arm64")
    assert shipped.filter(Resources.parse(cpus="4+", arch="aarch64")) is first


def test_memory_of_requests_is_bounded(catalog_of):
    row = {"cloud": "aws", "region": "r", "kind": "vm", "vcpus": 2.0}
    catalog = catalog_of(offers=[{**row, "instance_type": str(n)} for n in range(500)])
    catalog_module = sys.modules[type(catalog).__module__]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog_module, "_MAX_CACHED_ROWS", 1200)
        kept = [catalog.filter(cpus=2, nodes=nodes) for nodes in (1, 2, 3)]
        assert [len(found) for found in kept] == [500] * 3
        assert catalog.filter(cpus=2, nodes=3) is kept[2]
        assert catalog.filter(cpus=2, nodes=1) is not kept[0]


@pytest.mark.parametrize(
    ("labels", "near"),
    [
        ({"region": "us-eest-1"}, "us-east-1"),
        ({"zone": "us-east-1aa"}, "us-east-1a"),
        ({"instance_type": "c6i.4xlarg"}, "c6i.4xlarge"),
    ],
)
def test_unmatched_name_suggests_the_nearest(shipped, labels, near):
    with pytest.raises(SkyUsageError) as caught:
        shipped.check(Resources.parse(**labels))
    assert (caught.value.hint or "").startswith("did you mean") and near in caught.value.hint
    shipped.check(Resources.parse(region="eu"))
