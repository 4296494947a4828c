from __future__ import annotations

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.geography import parse_service, provides_packages


def only(catalog, **labels):
    return catalog.filter(on_demand=True, **labels).offers(1)[0]


def test_emr_on_a_machine_whose_surcharge_is_listed(shipped):
    bare = only(shipped, instance_type="m5.xlarge", region="us-east-1")
    with_emr = only(shipped, service="emr", instance_type="m5.xlarge", region="us-east-1")
    assert with_emr.price == pytest.approx(bare.price + 0.048)
    assert with_emr.service == "emr" and "surcharge" in with_emr.note
    assert with_emr.surcharge == pytest.approx(0.048) and bare.surcharge == 0
    assert bare.service == "" and bare.packages == ()


def test_emr_elsewhere_is_a_quarter_more_even_on_spot(shipped):
    bare = only(shipped, instance_type="m6g.4xlarge", zone="eu-central-1a")
    label = {"service": "emr", "instance_type": "m6g.4xlarge", "zone": "eu-central-1a"}
    assert only(shipped, **label).price == pytest.approx(1.25 * bare.price)
    spot = shipped.filter(instance_type="m6g.4xlarge", zone="eu-central-1a", spot=True).offers()
    on_spot = shipped.filter(spot=True, **label).offers()
    assert on_spot[0].price == pytest.approx(spot[0].price + 0.25 * bare.price)
    assert on_spot[0].surcharge == pytest.approx(0.25 * bare.price)


def test_dataproc_by_the_vcpu(shipped):
    bare = only(shipped, instance_type="n2-standard-16", zone="us-central1-a")
    label = {"instance_type": "n2-standard-16", "zone": "us-central1-a"}
    assert only(shipped, service="dataproc", **label).price == pytest.approx(bare.price + 0.16)


def test_hdinsight_on_the_machines_that_are_listed(shipped):
    found = shipped.filter(service="hdinsight").offers()
    assert {(o.instance_type, o.price) for o in found} == {
        ("Standard_D3_v2", 0.295),
        ("Standard_D4_v2", 0.59),
    }


def test_the_newest_version_that_brings_what_is_asked(shipped):
    packages = only(shipped, service="spark==3.1.2", cloud="gcp").packages
    assert packages == ("dataproc==2.0.29-debian10", "spark==3.1.2")
    emr = only(shipped, service="emr,spark==3.5.*", region="us-east-1").packages
    assert emr == ("emr==7.13.0", "spark==3.5.6")
    old = only(shipped, service="emr<6,spark", region="us-east-1").packages
    assert old[0].startswith("emr==5.")
    assert len(shipped.filter(service="spark==9.*")) == 0
    clouds = set(shipped.filter(service="spark==3.1.2").strings("cloud"))
    assert clouds == {"aws", "gcp"}


def test_a_limit_counts_the_surcharge(shipped):
    label = {"instance_type": "m5.xlarge", "region": "us-east-1", "on_demand": True}
    assert len(shipped.filter(max_hourly_cost=0.2, **label)) > 0
    assert len(shipped.filter(max_hourly_cost=0.2, service="emr", **label)) == 0


def test_serverless_prices_are_in_the_table(shipped):
    rows = [r for r in shipped.managed() if r["service"] == "emr-serverless"]
    assert any(r["region"] == "us-east-1" and r["usd"] == 0.052624 for r in rows)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("emr", ("emr",)),
        ("EMR, spark == 3.5.*", ("emr", "spark==3.5.*")),
        ("spark>=3.4,<3.6,hadoop~=3.3", ("spark>=3.4,<3.6", "hadoop~=3.3")),
    ],
)
def test_services_as_they_are_written(text, items):
    assert parse_service(text, "--service") == items


@pytest.mark.parametrize("text", ["", ",", "sparkle", "spark==", "spark==three", "spark=3", "3.5"])
def test_services_that_are_not_understood(text):
    with pytest.raises(SkyUsageError, match="--service"):
        parse_service(text, "--service")


@pytest.mark.parametrize(
    ("asked", "met"),
    [
        (("emr",), True),
        (("emr==7.*", "spark==3.5.*"), True),
        (("spark>=3.4,<3.5",), False),
        (("dataproc",), False),
        (("hadoop",), False),
        ((), True),
    ],
)
def test_managed_service_satisfies_request(asked, met):
    assert provides_packages(asked, ("emr==7.0.0", "spark==3.5.0-amzn-0")) is met


def test_a_preview_is_the_last_choice(shipped):
    assert only(shipped, service="dataproc").packages[0] == "dataproc==2.0.29-debian10"
    assert only(shipped, service="dataproc>=3").packages[0] == "dataproc==3.0-preview"
