"""Verda: what its machines and disks do that those of other clouds do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_sky.clouds import power_off_note
from jupyter_sky.clouds.launches import lease_watch
from jupyter_sky.clouds.provider import ProviderError
from jupyter_sky.clouds.verda import Verda
from tests.clouds.neo_worlds import VerdaWorld
from tests.clouds.rest_launches import Launches


@pytest.fixture(scope="module")
def verda() -> Iterator[Launches]:
    with Launches(VerdaWorld, Verda) as launches:
        yield launches


@pytest.fixture(autouse=True)
def emptied(verda: Launches, tmp_path, monkeypatch) -> Iterator[None]:
    yield from verda.prepare(tmp_path, monkeypatch)


def test_disk_ends_with_its_machine(verda):
    (machine,) = verda.launch()
    assert len(verda.world.api.volumes) == 1
    verda.provider.terminate([machine.id])
    assert (verda.world.bill(), verda.world.api.volumes) == (set(), {})


def test_disk_of_a_spot_machine_ends_when_it_is_taken_back(verda):
    (machine,) = verda.launch(spot=True)
    verda.world.take_back(machine.id)
    (seen,) = verda.provider.describe([machine.id])
    assert (seen.state, seen.preempted) == ("ended", True)
    assert verda.world.api.volumes == {}


def test_disks_of_machines_on_demand_have_no_word_on_spot(verda):
    (machine,) = verda.launch()
    assert "on_spot_discontinue" not in verda.entry(machine)["asked"]["os_volume"]


def test_machine_that_is_off_is_billed_in_full_and_watched(verda):
    (machine,) = verda.launch()
    verda.world.stop(machine.id)
    assert [each.id for each in verda.provider.machines()] == [machine.id]
    assert lease_watch.needs_watch("verda")
    assert power_off_note("verda").startswith("Verda bills a machine in full")


def test_stock_is_asked_before_each_launch(verda):
    request = verda.account.request()
    verda.world.api.stock = {}
    before = verda.world.api.count("POST /v1/instances")
    with pytest.raises(ProviderError) as refused:
        verda.account.launch(request)
    assert verda.provider.explain(refused.value).cause == "capacity"
    assert verda.world.api.count("POST /v1/instances") == before, "nothing was launched in vain"


def test_scripts_and_keys_are_swept_once_nothing_uses_them(verda):
    (machine,) = verda.launch()
    assert verda.provider.sweep(machine.owner, {machine.token}) == []
    verda.provider.terminate([machine.id])
    assert len(verda.provider.sweep(machine.owner, ())) == 2
    assert (verda.world.api.scripts, verda.world.api.keys) == ({}, {})


def test_token_is_asked_for_once(verda):
    before = verda.world.api.count("/oauth2/token")
    verda.launch(nodes=2)
    assert verda.world.api.count("/oauth2/token") == before + 1


def test_offers_are_what_is_free_with_prices_as_numbers(verda):
    found = {(o.region, o.instance_type, o.spot): o for o in verda.provider.offers()}
    assert ("FIN-01", "1H100.80S.30V", False) not in found
    offer = found["FIN-03", "1H100.80S.30V", True]
    assert (offer.gpu, offer.price, offer.country) == ("H100", 0.8, "FI")
    assert offer.on_demand_price is not None and offer.on_demand_price > offer.spot_price == 0.8
