"""Nebius: what its machines and operations do that those of other clouds do not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from nebius.api.nebius.compute.v1 import InstanceRecoveryPolicy

from jupyter_sky.base.errors import SkyNoCapacity
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import power_off_note
from jupyter_sky.clouds.launches import lease_watch
from jupyter_sky.clouds.nebius import provider as driver_module
from jupyter_sky.clouds.nebius.provider import Nebius
from jupyter_sky.clouds.provider import ProviderError
from tests.clouds.neo_worlds import NebiusWorld
from tests.clouds.rest_launches import Launches
from tests.emulators.nebius import REGIONS

CHEAPEST = ("eu-north1", "cpu-e2_2vcpu-8gb", False)


@pytest.fixture(scope="module")
def nebius() -> Iterator[Launches]:
    with Launches(NebiusWorld, Nebius) as launches:
        yield launches


@pytest.fixture(autouse=True)
def emptied(nebius: Launches, tmp_path, monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(driver_module, "_POLL_SECONDS", 0.05)
    yield from nebius.prepare(tmp_path, monkeypatch)


def test_machine_that_powers_itself_off_is_not_started_again(nebius):
    (machine,) = nebius.launch()
    assert nebius.entry(machine)["asked"].spec.recovery_policy == InstanceRecoveryPolicy.FAIL
    nebius.world.stop(machine.id)
    assert nebius.entry(machine)["status"] == "STOPPED", "the emulator recovers what may be"


def test_machine_that_is_off_is_billed_for_its_disk_and_watched(nebius):
    (machine,) = nebius.launch()
    nebius.world.stop(machine.id)
    assert [each.id for each in nebius.provider.machines()] == [machine.id]
    assert lease_watch.needs_watch("nebius")
    assert power_off_note("nebius").startswith("Nebius bills the disk of a machine that is off")


def test_disk_ends_with_its_machine(nebius):
    (machine,) = nebius.launch()
    assert nebius.world.api.disks == {machine.id: True}
    nebius.provider.terminate([machine.id])
    assert (nebius.world.bill(), nebius.world.api.disks) == (set(), {})


def test_preempted_machine_is_stopped_and_its_disk_swept(nebius):
    (machine,) = nebius.launch(spot=True)
    nebius.world.take_back(machine.id)
    (seen,) = nebius.provider.describe([machine.id])
    assert (seen.state, seen.preempted) == ("ended", True)
    assert nebius.provider.sweep(machine.owner, ()) == [f"disk of {machine.id}"]
    assert nebius.world.api.disks == {}


def test_new_machine_that_is_stopped_is_starting(nebius):
    request = nebius.account.request()
    api, config = nebius.world.api, nebius.account.config(request)
    api.boot_seconds = 60.0
    tags = dict(config.tags) | {"jupyter-sky-rank": "0"}
    prepared = nebius.provider.prepare_launch(request, config)
    machine = nebius.provider.create_machine(request, config, tags, prepared)
    (seen,) = nebius.provider.describe([machine.id])
    assert (seen.state, api.rented[machine.id].entry["status"]) == ("starting", "RUNNING")


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after it was accepted"])
def test_lack_of_capacity_is_told_by_the_launch(nebius, late):
    nebius.world.api.late = late
    nebius.world.api.refusals = ["", "not_enough_resources"]
    with pytest.raises(SkyNoCapacity):
        nebius.account.managed.launch(nebius.account.request(nodes=2))
    assert (nebius.world.bill(), nebius.world.api.disks) == (set(), {})


def test_machine_that_was_refused_later_is_told_with_the_reason(nebius):
    nebius.world.api.late = True
    nebius.world.api.refusals = ["not_enough_resources"]
    request = nebius.account.request()
    config = nebius.account.config(request)
    tags = dict(config.tags) | {"jupyter-sky-rank": "0"}
    prepared = nebius.provider.prepare_launch(request, config)
    machine = nebius.provider.create_machine(request, config, tags, prepared)
    (seen,) = nebius.provider.describe([machine.id])
    assert (seen.state, seen.reason) == ("ended", "Not enough resources")


def test_same_request_is_recognized_by_its_key_where_lists_are_late(nebius):
    request = nebius.account.request()
    nebius.world.api.hidden = 60.0
    first = nebius.account.launch(request)
    again = Nebius().launch(request, nebius.account.config(request), threading.Event())
    assert [each.id for each in again] == [each.id for each in first]
    assert len(nebius.world.bill()) == 1


def test_project_of_the_region_is_used(nebius, monkeypatch):
    (machine,) = nebius.launch()
    assert nebius.entry(machine)["asked"].metadata.parent_id == REGIONS["eu-north1"]
    settings = {"nebius": nebius.world.settings() | {"projects": "project-e00other"}}
    monkeypatch.setenv("SKY_PROVIDERS", repr(settings))
    Sky.clear_instance()
    regions = {offer.region for offer in Nebius().offers()}
    assert regions == {"eu-north1"}, "the chosen project is there"


def test_project_without_a_subnet_is_told(nebius):
    nebius.world.api.subnets = False
    assert nebius.refusal() == "invalid"


def test_offers_are_of_regions_with_a_project(nebius):
    found = {offer.region for offer in nebius.provider.offers()}
    assert found == set(REGIONS), "none of us-central1"


def test_what_is_sold_out_is_not_offered(nebius):
    def keys() -> set[tuple[str, str, bool]]:
        offers = nebius.provider.offers()
        return {(offer.region, offer.instance_type, offer.spot) for offer in offers}

    before = keys()
    spot = next(key for key in sorted(before) if key[2])
    nebius.world.api.sold_out = {CHEAPEST, spot}
    assert before - keys() == {CHEAPEST, spot}, "the other market of both is still offered"


def test_labels_keep_any_text(nebius):
    (machine,) = nebius.launch(owner="Ada Größe/7")
    assert machine.owner == "Ada Größe/7"
    labels = nebius.entry(machine)["asked"].metadata.labels
    assert labels["jupyter-sky-owner"] == "_41da_20_47r_c3_b6_c3_9fe_2f7"
    (seen,) = nebius.provider.machines(owner="Ada Größe/7")
    assert (seen.id, seen.token) == (machine.id, machine.token)


def test_tags_that_are_too_long_for_a_label_take_several(nebius):
    owner = "Ö" * 40
    (machine,) = nebius.launch(owner=owner)
    labels = nebius.entry(machine)["asked"].metadata.labels
    assert max(map(len, labels.values())) == 63 and "jupyter-sky-owner-3" in labels
    assert [each.id for each in nebius.provider.machines(owner=owner)] == [machine.id]


def test_machine_that_is_off_at_once_is_not_waited_for(nebius):
    request = nebius.account.request()
    config = nebius.account.config(request)
    tags = dict(config.tags) | {"jupyter-sky-rank": "0"}
    prepared = nebius.provider.prepare_launch(request, config)
    machine = nebius.provider.create_machine(request, config, tags, prepared)
    nebius.world.stop(machine.id)
    assert [each.id for each in nebius.account.launch(request)] == [machine.id]


def test_addresses_are_without_the_length_of_their_prefix(nebius):
    (machine,) = nebius.launch()
    (seen,) = nebius.provider.describe([machine.id])
    assert seen.address and "/" not in seen.address + seen.private


def test_credentials_are_a_token_or_a_file(nebius, monkeypatch, tmp_path):
    assert nebius.provider.configured() == "environment variable NEBIUS_IAM_TOKEN"
    monkeypatch.delenv("NEBIUS_IAM_TOKEN")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert nebius.provider.configured() == ""
    path = write_credentials(tmp_path, monkeypatch)[0]
    assert nebius.provider.configured() == str(path)


def write_credentials(folder, monkeypatch) -> tuple[Path, Any]:
    """Let a service account be used; return its file and its key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"alg": "RS256", "kid": "publickey-1", "iss": "account-1", "sub": "account-1"}
    account |= {"type": "JWT", "private-key": key.private_bytes(*form).decode()}
    path = folder / "key.json"
    path.write_text(json.dumps({"subject-credentials": account}))
    monkeypatch.delenv("NEBIUS_IAM_TOKEN", raising=False)
    monkeypatch.setenv("NEBIUS_CREDENTIALS_FILE", str(path))
    return path, key.public_key()


def test_service_account_gets_a_token_by_its_key(nebius, monkeypatch, tmp_path):
    _path, key = write_credentials(tmp_path, monkeypatch)
    nebius.world.api.authorized_keys = {"publickey-1": key}
    assert Nebius().identify() == "projects in eu-north1, eu-west1"


def test_key_that_is_not_authorized_is_told_until_it_is(nebius, monkeypatch, tmp_path, capfd):
    _path, key = write_credentials(tmp_path, monkeypatch)
    provider = Nebius()
    with pytest.raises(ProviderError) as refused:
        provider.identify()
    assert provider.explain(refused.value).cause == "permission"
    assert "Traceback" not in capfd.readouterr().err
    nebius.world.api.authorized_keys = {"publickey-1": key}
    assert provider.identify() == "projects in eu-north1, eu-west1"


@pytest.mark.parametrize("text", ["", "{}", '{"subject-credentials": {"kid": 1}}'])
def test_credentials_that_cannot_be_read_are_told(nebius, monkeypatch, tmp_path, text):
    path, _key = write_credentials(tmp_path, monkeypatch)
    path.write_text(text)
    provider = Nebius()
    with pytest.raises(ProviderError, match=f"credentials in {path} cannot be read") as refused:
        provider.identify()
    assert provider.explain(refused.value).cause == "permission"


def test_requests_are_sent_from_a_thread_with_an_event_loop(nebius):
    async def ask() -> str:
        return nebius.provider.identify()

    assert asyncio.run(ask()) == "projects in eu-north1, eu-west1"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("UNAUTHENTICATED", "permission"),
        ("RESOURCE_EXHAUSTED", "throttled"),
        ("INTERNAL", "transient"),
    ],
)
def test_refusal_without_details_is_classified_by_its_status(nebius, name, cause):
    assert Nebius.find_meaning(name, 0)[0] == cause
