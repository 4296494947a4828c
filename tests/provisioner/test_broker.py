"""Broker when places refuse: boto3 against EC2's emulator, without machines behind it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from jupyter_sky import clouds, tracker
from jupyter_sky.base.errors import (
    SkyNoCapacity,
    SkyNoOffer,
    SkyPermission,
    SkyUnreachable,
    SkyUsageError,
)
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.clouds import LaunchRequest, Machine
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.machines.provisioner import broker, record_observation, refusal_scope
from jupyter_sky.machines.provisioner.placement import decide_placement, usable_providers
from jupyter_sky.machines.provisioner.preview import preview_plan
from tests.emulators.ec2 import Ec2

_numbers = itertools.count()


def order(offer: Offer, need: Resources) -> LaunchRequest:
    token = f"train-{next(_numbers):08x}"
    return LaunchRequest(token, "train", offer, need, 60.0, "me-0001", "a.ipynb")


def bring(need: Resources, **options: Any) -> tuple[tuple[Offer, list[Machine]], list[Any]]:
    """Let the broker launch machines, without anything on them."""

    def launch(offer: Offer) -> tuple[Offer, list[Machine]]:
        return offer, clouds.get(offer.cloud).launch(order(offer, need))

    placed = broker.place(need, launch, lambda stage, detail: None, **options)
    return placed.result, list(placed.attempts)


NEED = Resources.parse(cloud="aws", cpus="4+", memory="8+")


def test_the_next_best_place_is_taken_when_places_refuse(aws: tuple[Ec2, Launcher]) -> None:
    account, _ = aws
    account.refuse("InsufficientInstanceCapacity", times=8)
    (offer, machines), attempts = bring(NEED)
    assert len(attempts) == 8 and {attempt.cause for attempt in attempts} == {"capacity"}
    asked = [attempt.offer for attempt in attempts]
    assert len({one.place for one in [*asked, offer]}) == 9, "no place is asked twice"
    prices = [one.price or 0.0 for one in [*asked, offer]]
    assert prices == sorted(prices), "the next one is the next cheapest"
    assert [machine["id"] for machine in account.machines()] == [machines[0].id]
    said = broker.format_attempts(attempts, offer)
    assert said.startswith(f"on {offer.place} after 8 refusals: ")
    assert "InsufficientInstanceCapacity" in said and asked[0].place in said


def test_a_quota_blocks_the_family_in_its_region_and_market(aws: tuple[Ec2, Launcher]) -> None:
    account, _ = aws
    account.refuse("VcpuLimitExceeded")
    (offer, _), (attempt,) = bring(NEED)
    family = tracker.observations.quota_family
    before = (attempt.offer.region, family("aws", attempt.offer.instance_type))
    assert attempt.cause == "quota"
    assert (offer.region, family("aws", offer.instance_type)) != before


def test_refusal_is_remembered_for_the_next_request(
    aws: tuple[Ec2, Launcher],
) -> None:
    """The provisioner tells the tracker; the plan of the next request leaves the place out."""
    account, _ = aws
    account.refuse("InsufficientInstanceCapacity")
    _, (attempt,) = bring(NEED)
    record_observation(
        "refused", refusal_scope(attempt.offer, attempt.error), cause="capacity", why="none"
    )
    (offer, _), attempts = bring(NEED)
    assert attempts == [] and offer.place != attempt.offer.place


def test_a_limit_of_spot_machines_leaves_those_on_demand(aws: tuple[Ec2, Launcher]) -> None:
    account, _ = aws
    need = Resources.parse(cloud="aws", cpus="4+", region="us-east-1", spot=True)
    account.refuse("MaxSpotInstanceCountExceeded", times=1000)
    with pytest.raises(SkyNoCapacity) as caught:
        bring(need)
    assert caught.value.cause == "quota" and caught.value.scope == "market"
    assert account.calls.count("RunInstances us-east-1") == 1, "one answer speaks for them all"
    assert tracker.blocked() == (), "the provisioner tells the tracker, not the broker"


def test_permission_stops_and_explains(aws: tuple[Ec2, Launcher]) -> None:
    account, _ = aws
    account.refuse("UnauthorizedOperation", times=9)
    with pytest.raises(SkyPermission) as caught:
        bring(NEED)
    assert "UnauthorizedOperation" in caught.value.message and caught.value.hint
    assert sum(call.startswith("RunInstances") for call in account.calls) == 1


def test_a_type_that_is_no_longer_sold_is_left_for_another(aws: tuple[Ec2, Launcher]) -> None:
    """The catalog may be older than that; who has named the type is told."""
    account, _ = aws
    account.refuse("InvalidInstanceType")
    _, (attempt,) = bring(NEED)
    assert "InvalidInstanceType" in str(attempt)
    account.refuse("InvalidInstanceType")
    with pytest.raises(SkyUsageError, match="InvalidInstanceType"):
        bring(Resources.parse(cloud="aws", instance_type="m5.large"))


def test_invalid_request_ends_after_a_few_places(aws: tuple[Ec2, Launcher]) -> None:
    account, _ = aws
    account.refuse("InvalidBlockDeviceMapping", times=99)
    with pytest.raises(SkyUsageError, match="InvalidBlockDeviceMapping"):
        bring(NEED)
    assert sum(call.startswith("RunInstances") for call in account.calls) == broker.LOST_STAGE


def test_throttling_is_waited_out_and_no_refusal_of_the_place(
    aws: tuple[Ec2, Launcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_sky.clouds.launches.retries.FIRST_WAIT_SECONDS", 0.02)
    account, _ = aws
    account.throttle("create", times=3)
    _, attempts = bring(NEED)
    assert attempts == []
    assert sum(call.startswith("RunInstances") for call in account.calls) == 4


@pytest.mark.parametrize("times", [1, 9])
def test_lost_answers_leave_one_machine_or_none(
    aws: tuple[Ec2, Launcher], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """One: asked again with the same token, the same machine. All: it is found by its tag."""
    monkeypatch.setattr("jupyter_sky.clouds.launches.retries.FIRST_WAIT_SECONDS", 0.02)
    account, cloud = aws
    account.lose("create", times=times)
    offer = preview_plan(NEED)[0].tasks[0].offer
    if times == 1:
        (machine,) = cloud.launch(order(offer, NEED))
        assert [one["id"] for one in account.machines()] == [machine.id]
        return
    with pytest.raises(SkyUnreachable):
        cloud.launch(order(offer, NEED))
    assert account.machines() == []
    assert list(launch_records().list_unfinished()) == [], "and the note says that it is gone"


def test_refused_key_says_nothing_of_machines(
    aws: tuple[Ec2, Launcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    account, cloud = aws
    offer = preview_plan(NEED)[0].tasks[0].offer
    for name, value in account.wrong_env("wrong").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SkyPermission) as caught:
        cloud.launch(order(offer, NEED))
    assert "aws configure" in (caught.value.hint or "")
    assert "machines may be up" not in str(caught.value)


def test_each_place_is_named_after_all_refused(aws: tuple[Ec2, Launcher]) -> None:
    account, _ = aws
    account.refuse("InsufficientInstanceCapacity", times=1000)
    need = Resources.parse(cloud="aws", instance_type="p4d.24xlarge", country="US")
    with pytest.raises(SkyNoCapacity) as caught:
        bring(need)
    asked = sum(call.startswith("RunInstances") for call in account.calls)
    assert f"({asked} were asked)" in caught.value.message
    assert caught.value.message.count("InsufficientInstanceCapacity") == min(asked, 8) > 1
    assert (f"and {asked - 8} more: jupyter sky tracker" in caught.value.message) == (asked > 8)
    assert "--retry-until-up" in (caught.value.hint or "")
    assert account.machines() == []


def test_until_up_asks_all_again_after_a_while(
    aws: tuple[Ec2, Launcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "RETRY_SECONDS", (0.3, 0.3))
    account, _ = aws
    need = Resources.parse(cloud="aws", instance_type="g5.xlarge", zone="us-east-1a", gpus="A10G:1")
    account.refuse("InsufficientInstanceCapacity", times=2)
    shown: list[str] = []

    def launch(offer: Offer) -> list[Machine]:
        return clouds.get("aws").launch(order(offer, need))

    placed = broker.place(need, launch, lambda stage, detail: shown.append(detail), until_up=True)
    assert len(placed.attempts) == 2 and len(placed.result) == 1
    assert any("all asked again in 0:0" in detail for detail in shown)


def test_an_interrupt_while_waiting_goes_through(
    aws: tuple[Ec2, Launcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    account, _ = aws
    account.refuse("InsufficientInstanceCapacity", times=1000)
    need = Resources.parse(cloud="aws", instance_type="g5.xlarge", zone="us-east-1a", gpus="A10G:1")

    def report(stage: str, detail: str) -> None:
        if "asked again" in detail:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broker.place(need, lambda offer: clouds.get("aws").launch(order(offer, need)), report, True)
    assert account.machines() == []


def test_without_credentials_the_error_says_how_to_get_some(
    aws: tuple[Ec2, Launcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    account, _ = aws
    for name in account.env().keys() - account.wrong_env("none").keys():
        monkeypatch.delenv(name)
    with pytest.raises(SkyPermission) as caught:
        decide_placement(NEED)
    assert "--cloud aws: no credentials" in caught.value.message
    assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")
    assert usable_providers(Resources()) == ()


def test_machines_of_ones_own_come_first_and_nothing_is_asked(
    aws: tuple[Ec2, Launcher],
) -> None:
    account, _ = aws
    assert decide_placement(Resources.parse(cpus="1")).offer.cloud == "local"
    assert account.calls == []
    with pytest.raises(SkyNoOffer):
        decide_placement(Resources.parse(cpus="100000"))


def test_spot_machines_are_for_those_who_ask(aws: tuple[Ec2, Launcher]) -> None:
    assert not preview_plan(NEED)[0].tasks[0].offer.spot
    spot = Resources.parse(cloud="aws", cpus="4+", spot=True)
    assert preview_plan(spot)[0].tasks[0].offer.spot
