"""Vast.ai: what its market does that other clouds do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds.provider import ProviderError
from jupyter_sky.clouds.vast import Vast
from jupyter_sky.machines.provisioner.placement import decide_placement, usable_providers
from tests.clouds.neo_worlds import VastWorld
from tests.clouds.rest_launches import Launches
from tests.emulators.vast import KEY, PAGE


@pytest.fixture(scope="module")
def vast() -> Iterator[Launches]:
    with Launches(VastWorld, Vast) as launches:
        yield launches


@pytest.fixture(autouse=True)
def emptied(vast: Launches, tmp_path, monkeypatch) -> Iterator[None]:
    yield from vast.prepare(tmp_path, monkeypatch)


def test_offer_that_somebody_took_gives_way_to_the_next(vast):
    cheapest = [each["id"] for each in vast.world.api.asks if each["gpu_name"] == "RTX 4090"][:2]
    vast.world.api.taken_meanwhile |= set(cheapest)
    request = vast.account.request()
    assert request.offer.instance_type == "1x-RTX-4090"
    vast.account.launch(request)
    assert vast.world.api.count("PUT /api/v0/asks/") == 3


def test_market_that_is_gone_is_a_lack_of_capacity(vast):
    request = vast.account.request()
    vast.world.api.asks.clear()
    with pytest.raises(ProviderError) as refused:
        vast.account.launch(request)
    assert vast.provider.explain(refused.value).cause == "capacity"


def test_contract_does_not_wait_for_a_machine_that_is_not_there(vast):
    (machine,) = vast.launch()
    assert vast.entry(machine)["asked"]["cancel_unavail"] is True


def test_contract_that_was_outbid_is_over_and_destroyed(vast):
    (machine,) = vast.launch(spot=True)
    vast.world.take_back(machine.id)
    (seen,) = vast.provider.describe([machine.id])
    assert (seen.state, seen.preempted) == ("ended", True)
    assert vast.world.bill() == {machine.id}, "its disk is billed"
    assert vast.provider.sweep(machine.owner, ()) == [f"disk of {machine.id}"]
    assert vast.world.bill() == set()


def test_long_lists_are_read_page_by_page(vast):
    ids = vast.world.fill(PAGE + 1, "ada")
    assert {machine.id for machine in vast.provider.machines(owner="ada")} == ids


def test_search_quota_is_no_throttling(vast):
    refusal = ProviderError("Search quota exceeded", code="search_quota_exceeded", status=429)
    assert vast.provider.explain(refusal).cause == "quota"


def test_key_of_the_account_is_not_sent_to_machines(vast):
    (machine,) = vast.launch()
    assert KEY not in repr(vast.entry(machine)["asked"])
    assert "$CONTAINER_API_KEY" in vast.provider.self_delete_script(None)


def test_machine_without_a_port_of_its_own_is_reached_by_the_proxy(vast):
    (machine,) = vast.launch()
    (seen,) = vast.provider.describe([machine.id])
    assert (seen.address, seen.port) == ("192.0.2.7", 22)
    vast.entry(machine)["ports"] = {}
    (seen,) = vast.provider.describe([machine.id])
    assert (seen.address, seen.port) == ("ssh4.vast.ai", 10600)


def test_offers_are_the_cheapest_of_a_kind_in_a_country(vast):
    found = {(o.region, o.instance_type, o.spot): o for o in vast.provider.offers()}
    assert len(found) == 4, "a machine that is nowhere cannot be placed"
    offer = found["SE", "1x-RTX-4090", False]
    assert (offer.gpu, offer.price, offer.jurisdiction) == ("RTX4090", 0.4, "EU")
    assert found["BG", "2x-RTX-4090", True].price == 0.45


def test_requests_for_several_nodes_pass_it_over(vast):
    assert usable_providers(Resources.parse(cloud="vast")) == ("vast",)
    need = Resources.parse(cloud="vast", nodes=2)
    assert usable_providers(need) == ()
    with pytest.raises(SkyNoOffer, match="do not reach each other"):
        decide_placement(need)


def test_machine_whose_end_is_refused_saves_no_other(vast, monkeypatch):
    first, second = vast.launch(nodes=2)
    delete = vast.provider.delete_machine

    def refuse_one(id: str) -> None:
        if id == first.id:
            raise ProviderError("not yours", code="not_authorized", status=403)
        delete(id)

    monkeypatch.setattr(vast.provider, "delete_machine", refuse_one)
    with pytest.raises(ProviderError, match="not yours"):
        vast.provider.terminate([first.id, second.id])
    assert vast.world.bill() == {first.id}
