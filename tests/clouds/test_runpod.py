"""RunPod: what its pods do that machines of other clouds do not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds import launchers
from jupyter_sky.clouds.launches.machine_script import SETUP_VARIABLE
from jupyter_sky.clouds.provider import ProviderError
from jupyter_sky.clouds.runpod import RunPod
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.machines.provisioner.placement import decide_placement
from tests.clouds.neo_worlds import RunPodWorld
from tests.clouds.rest_launches import Launches


@pytest.fixture(scope="module")
def runpod() -> Iterator[Launches]:
    with Launches(RunPodWorld, RunPod) as launches:
        yield launches


@pytest.fixture(autouse=True)
def emptied(runpod: Launches, tmp_path, monkeypatch) -> Iterator[None]:
    yield from runpod.prepare(tmp_path, monkeypatch)


def test_our_key_has_a_name_that_runpod_does_not_overwrite(runpod):
    (machine,) = runpod.launch()
    env = runpod.entry(machine)["env"]
    assert "PUBLIC_KEY" not in env and len(env[SETUP_VARIABLE]) > 1000


def test_stopped_pod_is_listed_as_its_disk_is_billed(runpod):
    (machine,) = runpod.launch()
    runpod.world.stop(machine.id)
    assert [each.id for each in runpod.provider.machines()] == [machine.id]
    runpod.provider.terminate([machine.id])
    assert runpod.world.bill() == set()


def test_pod_that_was_outbid_is_over_and_swept(runpod):
    (machine,) = runpod.launch(spot=True)
    assert runpod.entry(machine)["asked"]["bidPerGpu"] == pytest.approx(0.22)
    runpod.world.take_back(machine.id)
    (seen,) = runpod.provider.describe([machine.id])
    assert (seen.state, seen.preempted) == ("ended", True)
    assert runpod.world.bill() == {machine.id}, "its disk is billed"
    assert runpod.provider.sweep(machine.owner, {machine.token}) == []
    assert runpod.provider.sweep(machine.owner, ()) == [f"disk of {machine.id}"]
    assert runpod.world.bill() == set()


def test_runpod_ends_a_pod_at_the_end_of_its_lease(runpod):
    runpod.launch(lease=3600.0)

    def after(seconds: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))

    runpod.world.api.pass_time(after(3500))
    assert len(runpod.world.bill()) == 1
    runpod.world.api.pass_time(after(3700))
    assert runpod.world.bill() == set()


def test_pod_is_starting_until_its_port_is_known(runpod):
    runpod.world.api.late_ports = True
    (machine,) = runpod.launch()
    (seen,) = runpod.provider.describe([machine.id])
    assert (seen.state, seen.address) == ("starting", "")
    runpod.world.api.late_ports = False
    runpod.world.api.show_address(runpod.entry(machine), "198.51.100.4", "", 10341)
    (seen,) = runpod.provider.describe([machine.id])
    assert (seen.state, seen.address, seen.port) == ("running", "198.51.100.4", 10341)


def test_offers_are_what_is_in_stock_with_both_prices(runpod):
    found = {(o.region, o.instance_type, o.spot): o for o in runpod.provider.offers()}
    assert ("EU-RO-1", "1x_NVIDIA_H100_80GB_HBM3", False) not in found
    offer = found["US-KS-2", "2x_NVIDIA_H100_80GB_HBM3", True]
    assert (offer.gpu, offer.gpu_count, offer.price) == ("H100", 2, 3.5)
    assert (offer.spot_price, offer.on_demand_price, offer.billing_unit) == (3.5, 5.38, "second")
    assert (offer.vcpus, offer.memory, offer.country) == (16, 96, "US")
    assert found["EU-RO-1", "1x_NVIDIA_L4", False].jurisdiction == "EU"


@pytest.mark.parametrize("cause", ["capacity", "quota", "invalid"])
def test_refusal_is_told_by_its_text_as_all_have_one_code(runpod, cause):
    request = runpod.account.request()
    runpod.world.refuse(cause)
    with pytest.raises(ProviderError, match=r"\w") as refused:
        runpod.account.launch(request)
    assert refused.value.code == "RUNPOD"
    assert runpod.provider.explain(refused.value).cause == cause


def test_nodes_of_one_launch_share_a_network(runpod):
    first, second = runpod.launch(nodes=2)
    assert all(runpod.entry(each)["asked"]["globalNetwork"] for each in (first, second))
    seen = runpod.provider.describe([first.id])[0]
    assert seen.private == f"{first.id}.runpod.internal"


def test_stock_is_asked_just_before_a_launch_and_called_live(runpod, monkeypatch):
    need = Resources.parse(gpus="H100", cloud="runpod")
    monkeypatch.setattr(launchers, "_live_offers", {})
    decision = decide_placement(need)
    assert (decision.offer.region, decision.offer.price) == ("US-KS-2", 2.69)
    assert decision.notes == ("live: RunPod has one free now at this price",)
    assert describe_origin(decision.offer.source, decision.offer.date).text == "RunPod, live"
    (row,) = sky.Compute(cloud="runpod", accelerator="H100", nodes=2).offers().rows
    assert row[1:] == ("$5.38/h", "second", "RunPod, live")
    asked = runpod.world.api.count("POST /graphql")
    decide_placement(need)
    assert runpod.world.api.count("POST /graphql") == asked, "the answer is some seconds old"
    monkeypatch.setattr(launchers, "_live_offers", {})
    monkeypatch.setattr(runpod.world.api, "stock", {})
    with pytest.raises(SkyNoOffer):  # the catalog has some all the same
        decide_placement(need)
