"""Hyperstack: what its environments and machines do that those of other clouds do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_sky.clouds import hyperstack as driver_module
from jupyter_sky.clouds import power_off_note
from jupyter_sky.clouds.hyperstack import Hyperstack
from jupyter_sky.clouds.launches import lease_watch
from jupyter_sky.clouds.provider import ProviderError
from tests.clouds.neo_worlds import HyperstackWorld
from tests.clouds.rest_launches import Launches
from tests.emulators.hyperstack import flavor


@pytest.fixture(scope="module")
def hyperstack() -> Iterator[Launches]:
    with Launches(HyperstackWorld, Hyperstack) as launches:
        yield launches


@pytest.fixture(autouse=True)
def emptied(hyperstack: Launches, tmp_path, monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(driver_module, "_POLL_SECONDS", 0.05)
    yield from hyperstack.prepare(tmp_path, monkeypatch)


def test_ssh_is_at_port_22_and_admitted(hyperstack):
    (machine,) = hyperstack.launch()
    asked = hyperstack.entry(machine)["asked"]
    assert asked["enable_port_randomization"] is False, "it is on unless it is turned off"
    assert [rule["port_range_max"] for rule in asked["security_rules"]] == [22]


def test_nodes_share_an_environment_and_admit_each_other(hyperstack):
    machines = hyperstack.launch(nodes=2)
    entries = [hyperstack.entry(machine) for machine in machines]
    assert len({entry["environment"]["name"] for entry in entries}) == 1
    inner = [rule for rule in entries[0]["asked"]["security_rules"] if rule["port_range_min"] == 1]
    assert inner and all(rule["remote_ip_prefix"] != "0.0.0.0/0" for rule in inner)


def test_each_launch_has_an_environment_with_its_key(hyperstack):
    first, second = hyperstack.launch() + hyperstack.launch()
    api = hyperstack.world.api
    names = {hyperstack.entry(machine)["environment"]["name"] for machine in (first, second)}
    assert len(names) == 2 == len(api.environments)
    assert {place for place, _key in api.keypairs} == names
    assert all(len(name) <= 50 for name in names)


def test_environment_is_deleted_when_its_machine_is_gone(hyperstack):
    (machine,) = hyperstack.launch()
    api = hyperstack.world.api
    assert hyperstack.provider.sweep(machine.owner, {machine.token}) == []
    api.deletion_seconds = 2.0  # longer than the next request takes on a busy machine
    hyperstack.provider.terminate([machine.id])
    before = api.count("DELETE /v1/core/environments")
    (removed,) = hyperstack.provider.sweep(machine.owner, ())
    assert removed.startswith("environment sky-") and "SSH key" in removed
    assert (api.environments, api.keypairs) == ({}, {})
    assert api.count("DELETE /v1/core/environments") > before + 1, "it was refused meanwhile"


def test_environment_whose_machine_stays_is_left_for_the_next_sweep(hyperstack, monkeypatch):
    monkeypatch.setattr(driver_module, "_DELETION_SECONDS", 0.2)
    (machine,) = hyperstack.launch()
    api = hyperstack.world.api
    api.deletion_seconds = 60.0
    hyperstack.provider.terminate([machine.id])
    assert hyperstack.provider.sweep(machine.owner, ()) == []
    api.deletion_seconds = 0.0
    assert len(hyperstack.provider.sweep(machine.owner, ())) == 1


def test_environment_of_a_launch_elsewhere_is_left(hyperstack):
    """Its machine is not there yet, and this process has not heard of it."""
    request = hyperstack.account.request()
    hyperstack.provider.prepare_launch(request, hyperstack.account.config(request))
    api = hyperstack.world.api
    assert hyperstack.provider.sweep(request.owner, ()) == []
    (place,) = api.environments.values()
    place["created_at"] = "2025-01-01T00:00:00"
    assert len(hyperstack.provider.sweep(request.owner, ())) == 1


def test_environments_of_others_are_left(hyperstack):
    (machine,) = hyperstack.launch(owner="eve-5678abcd")
    hyperstack.provider.terminate([machine.id])
    assert hyperstack.provider.sweep("ada-1234abcd", ()) == []
    assert len(hyperstack.world.api.environments) == 1


def test_machine_that_is_off_is_billed_in_full_and_watched(hyperstack):
    (machine,) = hyperstack.launch()
    hyperstack.world.stop(machine.id)
    assert hyperstack.entry(machine)["status"] == "SHUTOFF"
    assert [each.id for each in hyperstack.provider.machines()] == [machine.id]
    assert lease_watch.needs_watch("hyperstack")
    assert power_off_note("hyperstack").startswith("Hyperstack bills a machine in full")


def test_hibernated_machine_is_billed(hyperstack):
    (machine,) = hyperstack.launch()
    hyperstack.entry(machine)["status"] = "HIBERNATED"
    assert [each.id for each in hyperstack.provider.machines()] == [machine.id]


def test_failed_machine_is_told_and_swept(hyperstack):
    (machine,) = hyperstack.launch()
    hyperstack.entry(machine)["status"] = "ERROR"
    (seen,) = hyperstack.provider.describe([machine.id])
    assert (seen.state, seen.reason) == ("ended", "Hyperstack could not start the machine")
    hyperstack.provider.sweep(machine.owner, ())
    assert hyperstack.world.api.environments == {}


def test_stock_is_asked_before_each_launch(hyperstack):
    request = hyperstack.account.request()
    for each in hyperstack.world.api.flavors:
        each["stock_available"] = False
    before = hyperstack.world.api.count("POST /v1/core/virtual-machines")
    with pytest.raises(ProviderError) as refused:
        hyperstack.account.launch(request)
    assert hyperstack.provider.explain(refused.value).cause == "capacity"
    assert hyperstack.world.api.count("POST /v1/core/virtual-machines") == before


@pytest.mark.parametrize(
    ("code", "cause"),
    [("no_stock", "capacity"), ("balance", "quota"), ("bad_request", "invalid")],
)
def test_refusals_of_one_code_are_told_apart_by_their_text(hyperstack, code, cause):
    hyperstack.world.api.refusals = [code]
    assert hyperstack.refusal() == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("name: Longer than maximum length 50.", "invalid"),
        ("The name exceeds the limit of 50 characters", "invalid"),
        ("The image is not available in this region", "invalid"),
        ("The flavor n3-L40x1 is not available", "capacity"),
        ("GPU quota limit reached", "quota"),
    ],
)
def test_refusal_without_a_code_is_told_by_its_text(hyperstack, text, cause):
    assert hyperstack.provider.explain(ProviderError(text, status=400)).cause == cause


def test_labels_do_not_tell_the_notebook(hyperstack):
    """They may be short, and the path of a notebook long."""
    (machine,) = hyperstack.launch()
    names = [label.partition("=")[0] for label in hyperstack.entry(machine)["labels"]]
    assert "jupyter-sky-token" in names and "jupyter-sky-notebook" not in names


def test_offers_are_flavors_in_stock_at_prices_of_their_gpus(hyperstack):
    hyperstack.world.api.flavors[-1]["stock_available"] = True
    found = {(o.instance_type, o.spot): o for o in hyperstack.provider.offers()}
    assert set(found) == {
        ("n1-cpu-small", False),
        ("n3-L40x1", False),
        ("n3-L40x1", True),
        ("n3-H100x8", False),
    }, "flavors of Kubernetes are not machines"
    assert found["n1-cpu-small", False].price == pytest.approx(4 * 0.03 + 4 * 0.005)
    eight = found["n3-H100x8", False]
    assert (eight.gpu, eight.gpu_count, eight.price) == ("H100-PCIe", 8, pytest.approx(8 * 1.95))
    assert (eight.country, eight.jurisdiction) == ("NO", "EEA")
    spot = found["n3-L40x1", True]
    assert (spot.price, spot.on_demand_price, spot.disk) == (0.8, 1.0, 850)


def test_spot_machine_is_launched_by_its_own_flavor(hyperstack):
    (machine,) = hyperstack.launch(spot=True)
    assert hyperstack.entry(machine)["asked"]["flavor_name"] == "n3-L40x1-spot"


def test_image_is_the_newest_of_its_kind_unless_set(hyperstack, monkeypatch):
    cpu, gpu = hyperstack.launch() + hyperstack.launch(spot=True)
    image = hyperstack.entry(cpu)["asked"]["image_name"]
    assert image == "Ubuntu Server 22.04 LTS (Jammy Jellyfish)"
    image = hyperstack.entry(gpu)["asked"]["image_name"]
    assert image == "Ubuntu Server 22.04 LTS R570 CUDA 12.8"
    hyperstack.world.api.images = ["Debian 12"]
    assert hyperstack.refusal() == "invalid"


def test_flavor_without_a_price_is_not_offered(hyperstack):
    hyperstack.world.api.flavors = [flavor("n3-X1", "US-1", 8, 32, "Marvel-9000", 1)]
    assert list(hyperstack.provider.offers()) == []
