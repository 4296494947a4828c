"""Machines of Google Cloud as they are listed and described, and how they have ended."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from jupyter_sky.clouds.gcp import instances as machine
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches.launcher import launch_machines
from jupyter_sky.clouds.provider.values import TAGS
from tests.clouds.gcp_requests import (
    DAY,
    OWNER,
    ZONE,
    create,
    instance,
    machine_config,
    order,
    trouble_of,
    until,
)
from tests.emulators import gce_lists, gce_validation
from tests.emulators.gce import Compute

pytest_plugins = ["tests.clouds.gcp_fixtures"]


def test_listing_reads_all_pages_of_ours_and_nothing_else(compute: Compute, provider: Gcp) -> None:
    compute.page = 2
    ours = create(provider, "a-00000001", nodes=3)
    ours += create(provider, "b-00000001", zone="europe-west4-b", region="europe-west4")
    theirs = launch_machines(
        provider,
        order("c-00000001", owner="bob-1234abcd"),
        machine_config("c-00000001", owner="bob-1234abcd"),
    )
    stranger = json.loads(json.dumps(instance(compute, theirs[0].id)))
    compute.world.instances[ZONE, "stranger"] = {**stranger, "name": "stranger", "labels": {}}
    ids = {m.id for m in ours}
    assert {m.id for m in provider.machines(owner=OWNER)} == ids
    assert {m.id for m in provider.machines()} == ids | {theirs[0].id}
    assert {m.rank for m in provider.machines(token="a-00000001")} == {0, 1, 2}
    assert provider.machines(owner=OWNER, token="c-00000001") == []
    there = provider.machines(owner=OWNER, regions=["europe-west4"])
    assert [m.id for m in there] == [ours[3].id]
    assert provider.machines(owner=OWNER, regions=[]) == []
    asked = [call for call in compute.calls if call == "GET aggregated/instances"]
    assert len(asked) > 6  # pages
    assert len(provider.describe([m.id for m in ours])) == 4


@pytest.mark.parametrize(
    ("owner", "token"),
    [
        ("ann-1234abcd", "train-3f2a91c0"),
        ("Ann Ärger <ann@example.com>", "Größe_7-3f2a91c0"),
        ("x" * 90, "y" * 80 + "-3f2a91c0"),
        ("7up", "0-00000000"),
    ],
)
def test_any_owner_and_token_come_back_as_they_were(
    compute: Compute, provider: Gcp, owner: str, token: str
) -> None:
    made = launch_machines(provider, order(token, owner=owner), machine_config(token, owner=owner))
    found = provider.machines(owner=owner, token=token)
    assert [(m.owner, m.token, m.cluster) for m in found] == [
        (owner, token, token.rpartition("-")[0])
    ]
    assert [m.id for m in found] == [m.id for m in made]
    near = owner.swapcase() if owner.swapcase() != owner else owner + "x"
    assert provider.machines(owner=near) == []


def test_names_fit_and_stay_apart() -> None:
    tokens = ["Größe-1", "größe-1", "gr-e-1", "a" * 70, "a" * 71, "a_b", "a-b", "0", "-"]
    stems = [machine.resource_prefix(token) for token in tokens]
    assert len(set(stems)) == len(tokens)
    for each in stems:
        assert gce_validation.NAME.fullmatch(f"{each}-9999"), each
        assert gce_validation.NAME.fullmatch(each), each


def test_a_zone_that_does_not_answer_is_not_taken_for_an_empty_one(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(provider)

    def partial(*given: Any) -> dict[str, Any]:
        answer = gce_lists.aggregated(*given)
        warning = {"code": "UNREACHABLE", "message": "The zone is unreachable."}
        answer["items"][f"zones/{ZONE}"] = {"warning": warning}
        return answer

    monkeypatch.setattr("tests.emulators.gce.aggregated", partial)
    trouble = trouble_of(lambda: provider.machines(owner=OWNER))
    assert trouble.cause == "transient" and ZONE in trouble.message


def test_a_machine_that_was_powered_off_is_still_paid_for(compute: Compute, provider: Gcp) -> None:
    made = create(provider)[0]
    compute.power_off(made.id)
    seen = provider.describe([made.id])[0]
    assert seen.state == "ended" and "disk is kept" in seen.reason and not seen.preempted
    assert seen.ended is not None and abs(seen.ended - time.time()) < 60
    assert [(m.id, m.state) for m in provider.machines(owner=OWNER)] == [(made.id, "running")]


def test_a_machine_that_was_taken_back_says_so(compute: Compute, provider: Gcp) -> None:
    made = create(provider, nodes=2, spot=True)
    compute.preempt(made[1].id, notice=0.05)
    until(lambda: len(compute.machines()) == 1)
    seen = {m.rank: m for m in provider.describe([m.id for m in made])}
    assert seen[0].state == "running"
    assert (seen[1].state, seen[1].preempted, seen[1].cluster) == ("ended", True, "train")
    assert abs((seen[1].ended or 0) - time.time()) < 60
    assert seen[1].reason == "the cloud took the spot machine back"
    other = {m.rank: m for m in Gcp().describe([m.id for m in made])}  # another process
    assert other[1].preempted and other[1].state == "ended"


def test_a_machine_whose_lease_has_ended_says_so(compute: Compute, provider: Gcp) -> None:
    over = replace(
        machine_config(), tags=machine_config().tags | {TAGS[4]: str(int(time.time()) - 5)}
    )
    made = launch_machines(provider, order(), over)
    compute.expire(time.time() + 4 * DAY)
    (seen,) = provider.describe([made[0].id])
    assert (seen.state, seen.preempted, seen.reason) == ("ended", False, "its lease has ended")
    assert seen.ended == seen.lease_end and seen.cluster == "train"


def test_the_console_is_read(compute: Compute, provider: Gcp) -> None:
    made = create(provider)[0]
    assert provider.console(made.id) == "train-3f2a91c0-0 login: "
    assert provider.console(f"{ZONE}/none-0") == ""
