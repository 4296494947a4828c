"""Managed services: what is chosen for a request, and what is refused before anything is rented."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

import jupyter_sky as sky
from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyNoOffer, SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.spark_version import spark_version
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import Amount
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.knowledge.catalog import load
from jupyter_sky.knowledge.catalog.managed_services import find_services
from jupyter_sky.machines.provisioner import broker
from jupyter_sky.machines.provisioner.placement import decide_placement


@pytest.mark.parametrize("service", ["dataproc", "hdinsight", "hdinsight,dataproc", "spark==3.1.2"])
def test_launch_is_refused_and_names_own_spark(own_data: None, service: str) -> None:
    def launch(offer: Offer) -> NoReturn:
        pytest.fail(f"{offer} was rented")

    need = Resources.parse(service=service, cpus="4+")
    with pytest.raises(SkyNoOffer) as caught:
        broker.place(need, launch, lambda stage, detail: None)
    if service != "spark==3.1.2":  # no account is set up here
        assert "can be planned and priced, not launched" in caught.value.message
        assert "%%sky --cpus 4+ --engine spark" in (caught.value.hint or "")


def test_release_without_sessions_is_named(own_data: None) -> None:
    offers = [
        sky.plan(Resources.parse(service=f"emr=={each}")).tasks[0].offer
        for each in ("6.5.0", "8.0.0")
    ]
    assert ["sessions begin with 8.0.0" in clouds.launch_obstacle(each) for each in offers] == [
        True,
        False,
    ]


def test_serverless_session_is_no_smaller_than_it_is_sold(own_data: None) -> None:
    need = Resources.parse(service="dataproc-serverless", cpus="4+", memory="64", nodes="2")
    offer = sky.plan(need).tasks[0].offer
    assert (offer.vcpus, offer.memory) == (9, 64), "7.25 GiB for each vCPU, 12 vCPUs together"
    with pytest.raises(SkyNoOffer, match="does not sell") as caught:
        sky.plan(replace(need, cpus=Amount(4)))
    assert caught.value.hint == "the next size: --cpus 9 --memory 64 --nodes 2"


def test_plan_and_price_stay(own_data: None) -> None:
    made = sky.plan(Resources.parse(service="emr", instance_type="m5.xlarge"))
    assert made.tasks[0].offer.service == "emr"


def test_machines_of_ones_own_run_spark_without_surcharge(own_data: None) -> None:
    decision = decide_placement(Resources.parse(service="spark>=4", cpus="1"))
    assert (decision.offer.cloud, decision.offer.service) == ("local", "own-spark")
    assert decision.offer.price == 0.0
    assert parse_cell_line('--service "spark>=4"').engine == "spark"


def test_cheapest_of_all_services_and_own_machines_is_planned(own_data: None) -> None:
    need = Resources.parse(service="spark>=4", cpus="16", memory="64", nodes="3", on_demand=True)
    made = sky.plan(need)
    assert made.tasks[0].offer.service == "own-spark", "it has no surcharge"
    services = {
        name: plan(replace(need, service=(name, "spark>=4"))).tasks[0].offer.price
        for name in ("own-spark", "emr-serverless", "dataproc-serverless")
    }
    assert made.tasks[0].offer.price == min(services.values())


def test_serverless_costs_what_its_size_costs(own_data: None) -> None:
    need = Resources.parse(
        service="emr-serverless,spark==3.5.*", cpus="16", memory="64", region="us-east-1"
    )
    offer = sky.plan(need).tasks[0].offer
    assert offer.price == pytest.approx(16 * 0.052624 + 64 * 0.0057785)
    assert "spark==3.5.6" in offer.packages and offer.country == "US"


def test_versions_of_the_paper_are_found() -> None:
    found = load().filter(service="spark==3.1.2", cpus="16")
    packages = {one.packages[0] for one in found.services}
    assert packages == {"emr==6.5.0", "dataproc==2.0.29-debian10"}


@pytest.mark.parametrize(
    ("labels", "message", "hint"),
    [
        ({"service": "spark==9.9"}, "spark==9.9: no managed service has that", "spark==4."),
        ({"service": "emr==7.99"}, "emr==7.99", '"emr==7.12.0" and --service "emr==7.13.0"'),
        ({"service": "emr-serverless", "gpus": "L4"}, "no accelerators", "--engine spark"),
    ],
)
def test_impossible_service_names_what_is_nearest(
    own_data: None, labels: dict[str, str], message: str, hint: str
) -> None:
    for ask in (lambda need: sky.plan(need), decide_placement):
        with pytest.raises(SkyNoOffer, match=message) as caught:
            ask(Resources.parse(**labels))
        assert hint in (caught.value.hint or "")


def test_analytics_service_is_planned_as_the_paper_writes_it(own_data: None) -> None:
    service = sky.AnalyticsService(
        {"spark": "3.1.2"}, resources=Resources(cpu=16, ram=64 * sky.GB, num_nodes=3)
    )
    task = sky.Task("queries").set_managed_service(service)
    planned = sky.plan(task).tasks[0]
    assert planned.nodes == 3 and planned.offer.vcpus == 16
    assert planned.offer.packages[:2] == ("emr==6.5.0", "spark==3.1.2")


def test_analytics_service_names_services_and_clauses() -> None:
    service = sky.AnalyticsService({"Spark": ">=3.4,<4"}, services=("emr", "dataproc"))
    assert service.request.service == ("emr", "dataproc", "spark>=3.4,<4")
    for wrong in ({"sparkle": "3"}, {"spark": "three"}, {}):
        with pytest.raises(SkyUsageError, match="AnalyticsService"):
            sky.AnalyticsService(wrong)
    with pytest.raises(SkyUsageError, match="no managed service"):
        sky.Task("t").set_managed_service("spark")  # type: ignore[arg-type]


def test_own_spark_is_of_the_client_that_is_here() -> None:
    own = [one for one in find_services(load()) if one.name == "own-spark"]
    assert {one.cloud for one in own} >= {"aws", "gcp", "azure"}
    assert {one.version for one in own} == {spark_version()}
