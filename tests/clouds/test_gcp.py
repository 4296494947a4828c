"""Google Cloud, by its real SDK over HTTPS, against an emulator of Compute Engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests
from google.auth.exceptions import DefaultCredentialsError

from jupyter_sky.clouds import gcp_errors
from jupyter_sky.clouds import gcp_machine as machine
from jupyter_sky.clouds.base import TAGS, Birth, Driver, Launch, Machine, Trouble, patient
from jupyter_sky.clouds.gcp import GcpDriver
from jupyter_sky.clouds.gcp_access import connect
from jupyter_sky.clouds.gcp_errors import TABLE, explain
from jupyter_sky.clouds.rented import RentedCloud
from jupyter_sky.offers import Offer
from jupyter_sky.resources import Resources
from tests.emulators import compute_bodies, compute_errors, compute_lists, google_tokens
from tests.emulators.compute import Compute
from tests.emulators.compute_bodies import Refused
from tests.emulators.fleet import Fleet, isolation_works

OWNER, ZONE = "ann-1234abcd", "us-central1-a"
DAY = 86400.0


@pytest.fixture(scope="module")
def server() -> Iterator[Compute]:
    made = Compute(boot=0.02)
    yield made
    made.close()


@pytest.fixture
def compute(server: Compute, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compute]:
    """A Compute Engine that is as new, which this process is pointed at."""
    use(monkeypatch, server.env())
    yield server
    server.reset()


@pytest.fixture(scope="module")
def shared() -> Iterator[Compute]:
    """A Compute Engine for tests that leave nothing behind; it has a network already."""
    made = Compute(boot=0.02)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, made.env())
        GcpDriver().create(order("first-00000000"), birth("first-00000000"), patient)
    yield made
    made.close()


@pytest.fixture
def driver() -> GcpDriver:
    return GcpDriver()


def use(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def order(token: str = "train-3f2a91c0", **given: Any) -> Launch:
    offer = {"region": "us-central1", "zone": ZONE, "instance_type": "n2-standard-2"}
    offer |= {"vcpus": 2, "memory": 8, "arch": "x86_64"}
    launch = {"idle": 600.0, "owner": OWNER, "notebook": "Notes on Birds.ipynb"}
    launch |= {"resources": Resources(nodes=given.pop("nodes", 1))}
    for name in ("lease", "owner", "notebook"):
        if name in given:
            launch[name] = given.pop(name)
    cluster = token.rpartition("-")[0]
    return Launch(token, cluster, Offer("gcp", **offer | given), **launch)


def birth(token: str = "train-3f2a91c0", disk: float = 50.0, **given: Any) -> Birth:
    ends = 1_800_000_000.0
    values = (given.pop("owner", OWNER), token.rpartition("-")[0], token, "Notes on Birds.ipynb")
    tags = dict(zip(TAGS, (*values, str(int(ends))), strict=True))
    return Birth("sky", "ssh-ed25519 AAAA sky", "#cloud-config\n{}", disk, ends, tags, **given)


def create(driver: GcpDriver, token: str = "train-3f2a91c0", **given: Any) -> list[Machine]:
    return driver.create(order(token, **given), birth(token), patient)


def trouble_of(ask: Callable[[], object]) -> Trouble:
    """What the driver makes of the error of a request that must fail."""
    with pytest.raises(Exception) as caught:
        ask()
    trouble = GcpDriver().explain(caught.value)
    assert trouble is not None, f"not explained: {caught.value!r}"
    return trouble


def until(true: Callable[[], object], seconds: float = 5.0) -> None:
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds
        time.sleep(0.01)


def instance(compute: Compute, id: str) -> dict[str, Any]:
    zone, _, name = id.partition("/")
    return compute.world.instances[zone, name]


# -- machines ------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 4])
def test_machines_are_made_described_and_removed(
    compute: Compute, driver: GcpDriver, nodes: int
) -> None:
    made = create(driver, nodes=nodes)
    assert [m.id for m in made] == [f"{ZONE}/train-3f2a91c0-{rank}" for rank in range(nodes)]
    assert [m.rank for m in made] == list(range(nodes))
    seen = driver.describe([m.id for m in made])
    assert {m.id for m in seen} == {m.id for m in made}
    for each in seen:
        assert (each.cloud, each.state, each.cluster) == ("gcp", "running", "train")
        assert (each.token, each.owner) == ("train-3f2a91c0", OWNER)
        assert each.lease_end == 1_800_000_000
        assert each.address.startswith("192.0.2.") and each.private.startswith("10.128.")
        assert abs(each.started - time.time()) < 60
    assert len({m.address for m in seen} | {m.private for m in seen}) == 2 * nodes
    driver.remove([m.id for m in made])
    driver.remove([m.id for m in made])  # what is being removed is no error
    until(lambda: not compute.machines())
    driver.remove([m.id for m in made])  # nor is what is gone
    assert driver.describe([m.id for m in made]) == []
    assert compute.world.disks == {}


def test_a_machine_ends_by_itself_whatever_happens_here(
    compute: Compute, driver: GcpDriver
) -> None:
    spot = create(driver, "spot-00000001", spot=True, lease=3600.5)[0]
    plain = create(driver, "plain-00000001", lease=200 * DAY)[0]
    plans = [instance(compute, each.id)["scheduling"] for each in (spot, plain)]
    assert [plan["provisioningModel"] for plan in plans] == ["SPOT", "STANDARD"]
    assert [plan["maxRunDuration"]["seconds"] for plan in plans] == ["3601", str(120 * 86400)]
    for each, plan in zip((spot, plain), plans, strict=True):
        assert plan["instanceTerminationAction"] == "DELETE"
        assert plan["automaticRestart"] is False
        assert all(disk["autoDelete"] for disk in instance(compute, each.id)["disks"])
    assert plans[0]["onHostMaintenance"] == "TERMINATE"
    assert "onHostMaintenance" not in plans[1]
    assert driver.ending(order()) == ""


def test_the_cloud_itself_deletes_a_machine_at_the_end_of_its_lease(
    compute: Compute, driver: GcpDriver
) -> None:
    compute.world.minute = 0.1
    short, long = create(driver, "short-00000001", lease=600)[0], create(driver, lease=DAY)[0]
    until(lambda: short.id not in {m["id"] for m in compute.machines()})
    assert driver.describe([short.id, long.id])[0].id == long.id
    assert compute.expire(time.time() + 3600) == []
    assert compute.expire(time.time() + DAY + 60) == ["train-3f2a91c0-0"]
    assert driver.machines(owner=OWNER) == []


def test_what_a_machine_is_born_with(compute: Compute, driver: GcpDriver) -> None:
    made = create(driver)[0]
    born = instance(compute, made.id)
    metadata = {item["key"]: item["value"] for item in born["metadata"]["items"]}
    assert metadata["user-data"] == "#cloud-config\n{}"
    assert metadata["ssh-keys"] == "sky:ssh-ed25519 AAAA sky"
    assert metadata["block-project-ssh-keys"] == "TRUE"
    assert metadata["enable-oslogin"] == "FALSE"
    assert metadata["jupyter-sky-notebook"] == "Notes on Birds.ipynb"
    assert born["labels"]["jupyter-sky-notebook"].startswith("notes-on-birds-ipynb-")
    assert "serviceAccounts" not in born
    disk = born["disks"][0]["initializeParams"]
    assert disk["sourceImage"] == machine.UBUNTU.format("amd64")
    assert disk["diskSizeGb"] == "50" and disk["labels"] == born["labels"]
    assert disk["diskType"].endswith("/pd-balanced")


@pytest.mark.parametrize(
    ("offer", "image", "disk"),
    [
        ({"instance_type": "t2a-standard-1", "arch": "arm64"}, "arm64", "pd-balanced"),
        ({"instance_type": "c4-standard-2"}, "amd64", "hyperdisk-balanced"),
    ],
)
def test_image_and_disk_fit_the_machine(
    compute: Compute, driver: GcpDriver, offer: dict[str, str], image: str, disk: str
) -> None:
    zone = {"t2a": "europe-west4-a", "c4-": "asia-east1-a"}[offer["instance_type"][:3]]
    made = create(driver, zone=zone, region=zone[:-2], **offer)[0]
    params = instance(compute, made.id)["disks"][0]["initializeParams"]
    assert params["sourceImage"].endswith(image)
    assert params["diskType"] == f"zones/{zone}/diskTypes/{disk}"


def test_gpus_come_attached_or_with_the_machine(compute: Compute, driver: GcpDriver) -> None:
    v100 = {"instance_type": "n1-standard-8+V100:1", "gpu": "V100", "gpu_count": 1}
    a100 = {"instance_type": "a2-highgpu-1g", "gpu": "A100", "gpu_count": 1}
    attached = instance(compute, create(driver, "v-00000001", **v100)[0].id)
    bundled = instance(compute, create(driver, "a-00000001", **a100, spot=True)[0].id)
    assert attached["machineType"].endswith(f"zones/{ZONE}/machineTypes/n1-standard-8")
    gpu = f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-v100"
    assert attached["guestAccelerators"] == [{"acceleratorType": gpu, "acceleratorCount": 1}]
    assert not bundled.get("guestAccelerators")
    for each in (attached, bundled):
        assert each["scheduling"]["onHostMaintenance"] == "TERMINATE"
        assert each["disks"][0]["initializeParams"]["sourceImage"] == machine.DEEP_LEARNING


def test_the_same_order_gets_the_same_zone_and_one_that_sells_it(
    compute: Compute, driver: GcpDriver
) -> None:
    once = create(driver, zone=None)[0].id
    assert once.startswith("us-central1-")
    assert create(driver, zone=None)[0].id == once
    others = {create(driver, f"other-{n:08x}", zone=None)[0].id.split("/")[0] for n in range(8)}
    assert len(others) > 1
    gpu = {"instance_type": "n1-standard-8+P4:1", "gpu": "P4", "gpu_count": 1, "zone": None}
    zones = {zone for zone, sold in machines_sold().items() if "nvidia-tesla-p4" in sold}
    assert create(driver, "p-00000001", **gpu)[0].id.split("/")[0] in zones
    gone = trouble_of(lambda: create(driver, "no-00000001", zone=None, instance_type="n0-none-1"))
    assert gone.cause == "invalid" and "no zone of us-central1 has n0-none-1" in gone.message


def machines_sold() -> dict[str, set[str]]:
    from tests.emulators.compute_world import sold

    return sold()[1]


# -- all or nothing ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "cause", "width"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "capacity", "zone"),
        ("QUOTA_EXCEEDED:CPUS", "quota", "region"),
        ("QUOTA_EXCEEDED:N2_CPUS", "quota", "family"),
        ("QUOTA_EXCEEDED:NVIDIA_T4_GPUS", "quota", "family"),
        ("QUOTA_EXCEEDED:PREEMPTIBLE_CPUS", "quota", "market"),
        ("QUOTA_EXCEEDED:IN_USE_ADDRESSES", "quota", "region"),
        ("QUOTA_EXCEEDED:GPUS_ALL_REGIONS", "quota", "region"),
        ("quotaExceeded", "quota", "region"),
    ],
)
def test_one_refused_machine_of_four_ends_the_others(
    compute: Compute, driver: GcpDriver, code: str, cause: str, width: str
) -> None:
    compute.refuse(code)
    trouble = trouble_of(lambda: create(driver, nodes=4))
    assert (trouble.cause, trouble.width) == (cause, width)
    assert trouble.code == code.partition(":")[0]
    if quota := code.partition(":")[2]:
        assert quota in trouble.message and quota in trouble.fix
    until(lambda: not compute.machines())
    assert compute.world.disks == {}


def test_a_place_that_refused_an_order_may_take_it_later(
    compute: Compute, driver: GcpDriver
) -> None:
    compute.refuse("ZONE_RESOURCE_POOL_EXHAUSTED", times=3)
    for _ in range(3):
        assert trouble_of(lambda: create(driver)).cause == "capacity"
    assert create(driver)[0].state == "running"
    assert len(compute.machines()) == 1


def test_refusals_hold_for_what_they_say(compute: Compute, driver: GcpDriver) -> None:
    compute.refuse("ZONE_RESOURCE_POOL_EXHAUSTED", zone=ZONE, spot=True, times=99)
    assert trouble_of(lambda: create(driver, "a-00000001", spot=True)).cause == "capacity"
    assert create(driver, "b-00000001", spot=False)
    assert create(driver, "c-00000001", spot=True, zone="us-central1-b")


# -- counted once --------------------------------------------------------------------------


def test_a_lost_answer_makes_no_second_machine(compute: Compute, driver: GcpDriver) -> None:
    compute.lose("create", times=2)
    assert trouble_of(lambda: create(driver, nodes=4)).cause == "transient"
    assert len(compute.machines()) == 4  # they are waited for, not removed
    made = create(driver, nodes=4)
    assert [m.rank for m in made] == [0, 1, 2, 3]
    assert len(compute.machines()) == 4 == len(compute.world.requests)


def test_a_doubled_request_makes_no_second_machine(compute: Compute, driver: GcpDriver) -> None:
    compute.double("create", times=4)
    assert len(create(driver, nodes=4)) == 4
    assert len(compute.machines()) == 4
    compute.double("network", times=3)
    compute.double("remove", times=4)
    driver.remove([each["id"] for each in compute.machines()])
    until(lambda: not compute.machines())


def test_an_order_that_was_removed_can_be_sent_again(compute: Compute, driver: GcpDriver) -> None:
    made = create(driver)
    compute.world.boot = 0.5
    driver.remove([m.id for m in made])
    busy = trouble_of(lambda: create(driver))  # its name is still taken
    assert busy.cause == "transient"
    until(lambda: not compute.machines())
    assert create(driver)[0].started >= made[0].started


def test_a_machine_of_that_name_that_is_not_ours_is_not_taken(
    compute: Compute, driver: GcpDriver
) -> None:
    made = create(driver)[0]
    items = instance(compute, made.id)["metadata"]["items"]
    next(item for item in items if item["key"] == machine.TOKEN)["value"] = "another"
    with_other_id = order(spot=True)
    assert (
        trouble_of(lambda: driver.create(with_other_id, birth(), patient)).code == "alreadyExists"
    )


def test_answers_lost_while_waiting_are_asked_for_again(
    compute: Compute, driver: GcpDriver
) -> None:
    compute.lose("poll", times=4)
    compute.world.boot = 0.3
    assert create(driver)[0].state == "running"


def test_giving_up_is_heard_within_a_moment(compute: Compute, driver: GcpDriver) -> None:
    compute.world.boot = 30.0
    beats: list[float] = []

    def tick() -> None:
        beats.append(time.monotonic())
        if len(beats) > 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        driver.create(order(), birth(), tick)
    gaps = [after - before for before, after in pairwise(beats)]
    assert sorted(gaps)[len(gaps) // 2] < 0.5


# -- listing -------------------------------------------------------------------------------


def test_listing_reads_all_pages_of_ours_and_nothing_else(
    compute: Compute, driver: GcpDriver
) -> None:
    compute.page = 2
    ours = create(driver, "a-00000001", nodes=3)
    ours += create(driver, "b-00000001", zone="europe-west4-b", region="europe-west4")
    theirs = driver.create(
        order("c-00000001", owner="bob-1234abcd"),
        birth("c-00000001", owner="bob-1234abcd"),
        patient,
    )
    stranger = json.loads(json.dumps(instance(compute, theirs[0].id)))
    compute.world.instances[ZONE, "stranger"] = {**stranger, "name": "stranger", "labels": {}}
    ids = {m.id for m in ours}
    assert {m.id for m in driver.machines(owner=OWNER)} == ids
    assert {m.id for m in driver.machines()} == ids | {theirs[0].id}
    assert {m.rank for m in driver.machines(token="a-00000001")} == {0, 1, 2}
    assert driver.machines(owner=OWNER, token="c-00000001") == []
    there = driver.machines(owner=OWNER, regions=["europe-west4"])
    assert [m.id for m in there] == [ours[3].id]
    assert driver.machines(owner=OWNER, regions=[]) == []
    asked = [call for call in compute.calls if call == "GET aggregated/instances"]
    assert len(asked) > 6  # pages
    assert len(driver.describe([m.id for m in ours])) == 4


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
    compute: Compute, driver: GcpDriver, owner: str, token: str
) -> None:
    made = driver.create(order(token, owner=owner), birth(token, owner=owner), patient)
    found = driver.machines(owner=owner, token=token)
    assert [(m.owner, m.token, m.cluster) for m in found] == [
        (owner, token, token.rpartition("-")[0])
    ]
    assert [m.id for m in found] == [m.id for m in made]
    near = owner.swapcase() if owner.swapcase() != owner else owner + "x"
    assert driver.machines(owner=near) == []


def test_names_fit_and_stay_apart() -> None:
    tokens = ["Größe-1", "größe-1", "gr-e-1", "a" * 70, "a" * 71, "a_b", "a-b", "0", "-"]
    stems = [machine.stem(token) for token in tokens]
    assert len(set(stems)) == len(tokens)
    for each in stems:
        assert compute_bodies.NAME.fullmatch(f"{each}-9999"), each
        assert compute_bodies.NAME.fullmatch(each), each


def test_a_zone_that_does_not_answer_is_not_taken_for_an_empty_one(
    compute: Compute, driver: GcpDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(driver)

    def partial(*given: Any) -> dict[str, Any]:
        answer = compute_lists.aggregated(*given)
        warning = {"code": "UNREACHABLE", "message": "The zone is unreachable."}
        answer["items"][f"zones/{ZONE}"] = {"warning": warning}
        return answer

    monkeypatch.setattr("tests.emulators.compute.aggregated", partial)
    trouble = trouble_of(lambda: driver.machines(owner=OWNER))
    assert trouble.cause == "transient" and ZONE in trouble.message


def test_a_machine_that_was_powered_off_is_still_paid_for(
    compute: Compute, driver: GcpDriver
) -> None:
    made = create(driver)[0]
    compute.world._ended((ZONE, "train-3f2a91c0-0"), "shutdown")
    seen = driver.describe([made.id])[0]
    assert seen.state == "ended" and "disk is kept" in seen.reason and not seen.preempted
    assert seen.ended is not None and abs(seen.ended - time.time()) < 60
    assert [(m.id, m.state) for m in driver.machines(owner=OWNER)] == [(made.id, "running")]


def test_a_machine_that_was_taken_back_says_so(compute: Compute, driver: GcpDriver) -> None:
    made = create(driver, nodes=2, spot=True)
    compute.preempt(made[1].id, notice=0.05)
    until(lambda: len(compute.machines()) == 1)
    seen = {m.rank: m for m in driver.describe([m.id for m in made])}
    assert seen[0].state == "running"
    assert (seen[1].state, seen[1].preempted, seen[1].cluster) == ("ended", True, "train")
    assert abs((seen[1].ended or 0) - time.time()) < 60
    other = {m.rank: m for m in GcpDriver().describe([m.id for m in made])}  # another process
    assert other[1].preempted and other[1].state == "ended"


def test_the_console_is_read(compute: Compute, driver: GcpDriver) -> None:
    made = create(driver)[0]
    assert driver.console(made.id) == "train-3f2a91c0-0 login: "
    assert driver.console(f"{ZONE}/none-0") == ""


# -- network -------------------------------------------------------------------------------


def test_port_22_and_the_nodes_of_one_cluster_are_all_that_is_open(
    compute: Compute, driver: GcpDriver
) -> None:
    two, one = create(driver, "two-00000001", nodes=2), create(driver, "one-00000001")
    rules = {name: dict(rule) for name, rule in compute.world.firewalls.items()}
    assert set(rules) == {machine.ssh_tag(birth()), "two-00000001"}
    ssh = rules[machine.ssh_tag(birth())]
    assert ssh["sourceRanges"] == ["0.0.0.0/0"]
    assert ssh["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}]
    inside = compute.world.ingress(instance(compute, two[0].id))
    assert ("0.0.0.0/0", 22) in inside
    assert {rule for rule in inside if rule[1] == 0} == {(f"{m.private}/32", 0) for m in two}
    assert compute.world.ingress(instance(compute, one[0].id)) == [("0.0.0.0/0", 22)]
    narrow = birth("far-00000001", ssh_from=("203.0.113.0/24", "198.51.100.7/32"))
    far = driver.create(order("far-00000001"), narrow, patient)
    assert compute.world.ingress(instance(compute, far[0].id)) == [
        ("203.0.113.0/24", 22),
        ("198.51.100.7/32", 22),
    ]
    driver.remove([m.id for m in two])
    assert "two-00000001" not in compute.world.firewalls


def test_many_notebooks_at_once_make_one_network(compute: Compute) -> None:
    compute.world.boot = 0.2
    tokens = [f"nb-{number:08x}" for number in range(6)]
    with ThreadPoolExecutor(6) as workers:
        made = list(workers.map(lambda token: create(GcpDriver(), token, nodes=2), tokens))
    assert sum(map(len, made)) == 12 == len(compute.machines())
    assert list(compute.world.networks) == ["jupyter-sky"]
    assert len(compute.world.firewalls) == 7


def test_a_network_whose_making_was_interrupted_is_finished(
    compute: Compute, driver: GcpDriver
) -> None:
    compute.lose("network")
    assert trouble_of(lambda: create(driver)).cause == "transient"
    assert create(driver)


def test_teardown_takes_the_network_only_when_nobody_uses_it(
    compute: Compute, driver: GcpDriver
) -> None:
    made = create(driver)
    driver.teardown("us-central1")
    assert list(compute.world.networks) == ["jupyter-sky"] and compute.world.firewalls
    driver.remove([m.id for m in made])
    until(lambda: not compute.machines())
    driver.teardown("us-central1")
    assert not compute.world.networks and not compute.world.firewalls
    driver.teardown("us-central1")
    assert create(driver)  # it is made anew


def test_leftovers_are_found_once_they_are_old(
    compute: Compute, driver: GcpDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create(driver, nodes=2)
    for disk in compute.world.disks:
        compute.world.instances[disk]["disks"][0]["autoDelete"] = False
    compute.world._gone((ZONE, "train-3f2a91c0-0"))
    assert driver.leftovers(OWNER) == []  # young: it may be about to be used
    monkeypatch.setattr("jupyter_sky.clouds.gcp_network.YOUNG_SECONDS", -60.0)
    assert driver.leftovers("bob-1234abcd") == []
    assert driver.leftovers(OWNER, ["europe-west4"]) == []
    assert driver.leftovers(OWNER) == [f"disk {made[0].id}"]
    compute.world._gone((ZONE, "train-3f2a91c0-1"))
    found = driver.leftovers(OWNER)
    assert found == [f"disk {made[1].id}", "firewall rule train-3f2a91c0"]
    assert compute.world.disks == {} and driver.leftovers(OWNER) == []


# -- what goes wrong -----------------------------------------------------------------------


def _reached(code: str) -> str:
    """Where a code of the table comes from."""
    if code in compute_errors.LATE:
        return "create"
    return "list" if code in compute_errors.AT_ONCE else "token"


OWN_WORDS = {"clock", "no credentials", "no project", "wrong project", "page", "certificate"}
OWN_WORDS |= {"connection", "timeout"}


@pytest.mark.parametrize("code", sorted(set(TABLE) - OWN_WORDS))
def test_every_code_of_the_table_is_known_over_the_wire(
    shared: Compute, driver: GcpDriver, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    use(monkeypatch, shared.env())
    action = _reached(code)
    # google-auth asks again by itself: for a token, and with a new one
    again = action == "token" or compute_errors.AT_ONCE.get(code, (0,))[0] == 401
    shared.refuse(code, action=action, times=3 if again else 1)
    try:
        if action == "create":
            trouble = trouble_of(lambda: create(driver, f"x-{abs(hash(code)):x}"))
        else:
            if action == "token":
                monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda _: None)
                shared.tokens.forget()
            trouble = trouble_of(driver.machines)
    finally:
        shared._scripts.clear()
    cause, width, fix = TABLE[code]
    assert (trouble.cause, trouble.code, trouble.width) == (cause, code, width)
    assert trouble.message and "\n" not in trouble.message
    assert trouble.fix.startswith(fix)
    assert fix or cause in ("capacity", "throttled", "transient", "invalid")


@pytest.mark.parametrize(
    ("kind", "cause", "code", "says", "does"),
    [
        ("none", "permission", "no credentials", "no application default", "gcloud auth"),
        ("missing", "permission", "no credentials", "was not found", "gcloud auth"),
        ("broken", "permission", "no credentials", "not a valid json", "gcloud auth"),
        ("wrong", "permission", "invalid_grant", "Invalid JWT Signature", "gcloud auth"),
        ("expired", "permission", "invalid_grant", "expired or revoked", "gcloud auth"),
        ("project", "permission", "notFound", "'projects/sky-nowhere'", "gcloud projects list"),
        ("others", "permission", "forbidden", "'projects/sky-of-others'", "add-iam-policy"),
        ("no project", "permission", "no project", "no project", "GOOGLE_CLOUD_PROJECT"),
        ("api", "permission", "SERVICE_DISABLED", "has not been used", "gcloud services enable"),
        ("billing", "permission", "BILLING_DISABLED", "billing", "gcloud billing"),
        ("permission", "permission", "IAM_PERMISSION_DENIED", "Required", "add-iam-policy"),
    ],
)
def test_what_is_wrong_with_an_account_is_said_with_the_way_out(
    shared: Compute,
    driver: GcpDriver,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    cause: str,
    code: str,
    says: str,
    does: str,
) -> None:
    use(monkeypatch, shared.wrong_env(kind))
    for ask in (driver.identify, lambda: create(driver)):
        trouble = trouble_of(ask)
        assert (trouble.cause, trouble.code) == (cause, code)
        assert says in trouble.message and does in trouble.fix
        assert "PRIVATE KEY" not in str(trouble)


def test_a_clock_that_is_wrong_is_found_out(compute: Compute, driver: GcpDriver) -> None:
    compute.skew = 7200.0
    trouble = trouble_of(driver.identify)
    assert trouble.cause == "permission" and "timedatectl" in trouble.fix
    assert "reasonable timeframe" in trouble.message
    compute.skew = 0.0
    assert driver.identify() == "sky@sky-test.iam.gserviceaccount.com in project sky-test"


def test_a_token_that_has_ended_is_asked_for_anew(compute: Compute, driver: GcpDriver) -> None:
    driver.identify()
    before = compute.calls.count("POST /token")
    compute.tokens.forget()
    assert driver.identify().endswith("in project sky-test")
    assert compute.calls.count("POST /token") == before + 1


def test_without_credentials_nobody_is_asked(
    compute: Compute, driver: GcpDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver.configured() == f"GOOGLE_APPLICATION_CREDENTIALS={compute._key}"
    use(monkeypatch, compute.wrong_env("none"))
    assert driver.configured() == ""
    with pytest.raises(DefaultCredentialsError):
        driver.identify()
    assert compute.calls == []
    login = Path(os.environ["CLOUDSDK_CONFIG"]) / "application_default_credentials.json"
    login.parent.mkdir()
    login.write_text(compute._key.read_text())
    assert str(login) in driver.configured()
    assert driver.identify().endswith("in project sky-test")


def test_asking_what_is_configured_imports_no_sdk() -> None:
    code = (
        "import sys, jupyter_sky.clouds.gcp as gcp; gcp.GcpDriver().configured(); "
        "print([m for m in sys.modules if m.startswith('google.')])"
    )
    env = {**os.environ, "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere.json"}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr


def test_what_cannot_be_is_told(shared: Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, shared.env())
    driver = GcpDriver()
    gone = trouble_of(lambda: create(driver, "g-00000001", instance_type="n1-standard-3"))
    assert gone.cause == "invalid" and "n1-standard-3" in gone.message
    large = birth("l-00000001", disk=70000)
    too_large = trouble_of(lambda: driver.create(order("l-00000001"), large, patient))
    assert too_large.cause == "invalid" and "70000" in too_large.message
    nowhere = trouble_of(lambda: create(driver, "z-00000001", zone="us-central9-a"))
    assert nowhere.cause == "invalid" and "us-central9-a" in nowhere.message
    arm = trouble_of(lambda: create(driver, "r-00000001", arch="arm64"))
    assert arm.cause == "invalid" and "architecture" in arm.message
    assert not [m for m in shared.machines() if "first" not in m["id"]]


def test_a_page_in_place_of_an_answer_is_called_that(
    shared: Compute, driver: GcpDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, shared.env())
    driver.identify()
    for status, cause in ((200, "unknown"), (403, "unknown"), (503, "transient")):
        shared.refuse(f"page:{status}", action="identify")
        trouble = trouble_of(driver.identify)
        assert trouble.cause == cause, status
        assert "Google" in trouble.message and "NO_PROXY" in trouble.fix
        assert "<" not in trouble.message
    for status in (200, 403):
        shared.refuse(f"page:{status}", action="token")
        shared.tokens.forget()
        trouble = trouble_of(driver.identify)
        assert trouble.cause == "unknown" and "NO_PROXY" in trouble.fix
    shared.refuse("page:503", action="create")
    assert trouble_of(lambda: create(driver, "h-00000001")).cause == "transient"


def test_what_only_seems_gone_is_not_taken_for_gone(
    shared: Compute, driver: GcpDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = [f"{ZONE}/first-00000000-0"]
    use(monkeypatch, shared.env())
    shared.refuse("page:404", action="remove")
    assert trouble_of(lambda: driver.remove(ours)).cause == "unknown"
    use(monkeypatch, shared.wrong_env("project"))
    assert trouble_of(lambda: driver.remove(ours)).cause == "permission"
    assert trouble_of(lambda: driver.describe(ours)).cause == "permission"
    use(monkeypatch, shared.env())
    assert [m.id for m in driver.describe(ours)] == ours


def test_a_proxy_in_between_that_lets_nothing_through(
    compute: Compute, driver: GcpDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            self.send_error(403, "Forbidden by policy")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "")
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.server_port}")
        trouble = trouble_of(driver.identify)
        assert trouble.cause == "transient" and "HTTPS_PROXY" in trouble.fix
        assert "proxy" in trouble.message
    finally:
        server.shutdown()
        server.server_close()


def test_a_certificate_that_is_not_trusted_is_not_called_a_bad_network(
    compute: Compute, driver: GcpDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    import certifi

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    trouble = trouble_of(driver.identify)
    assert trouble.cause == "unknown" and "REQUESTS_CA_BUNDLE" in trouble.fix


def test_connections_that_break_or_hang_pass(
    compute: Compute, driver: GcpDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.identify()
    compute.lose("identify")
    assert trouble_of(driver.identify).cause == "transient"
    compute.outage(0.3)
    assert trouble_of(driver.identify).cause == "transient"
    time.sleep(0.3)
    compute.slow("identify", 1.0)
    monkeypatch.setitem(__import__("jupyter_sky.clouds.gcp_access").clouds.gcp_access.ONCE,
                        "timeout", 0.2)  # fmt: skip
    trouble = trouble_of(driver.identify)
    assert (trouble.cause, trouble.code) == ("transient", "timeout")
    compute.slow("identify", 0)
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "https://localhost:1/compute/v1/")
    assert trouble_of(driver.identify).code == "connection"


def test_errors_of_others_are_not_ours() -> None:
    assert explain(ValueError("no")) is None
    assert explain(KeyError("x")) is None
    assert explain(requests.ConnectTimeout("timed out")).code == "timeout"
    for cause, width, _ in TABLE.values():
        assert cause in ("capacity", "quota", "permission", "invalid", "throttled",
                         "transient", "unknown")  # fmt: skip
        assert width in ("zone", "region", "family", "market")
    assert gcp_errors.is_code(ValueError("x"), "gone") is False


# -- with what all rented clouds share -----------------------------------------------------


def test_it_is_a_driver(driver: GcpDriver) -> None:
    names = [name for name in vars(Driver) if not name.startswith("_")]
    assert [name for name in names if not hasattr(driver, name)] == []


def test_requests_that_are_throttled_or_lost_are_sent_again(compute: Compute) -> None:
    cloud = RentedCloud(GcpDriver())
    compute.throttle("create", times=1)
    compute.lose("create", times=1)
    made = cloud.ask(lambda: create(cloud.driver, nodes=2))  # type: ignore[arg-type]
    assert [m.rank for m in made] == [0, 1]
    assert len(compute.machines()) == 2


# -- the emulator itself -------------------------------------------------------------------


def _post(compute: Compute, path: str, body: Any) -> requests.Response:
    token = compute.tokens
    google = connect().credentials
    from google.auth.transport.requests import Request

    google.refresh(Request())
    assert token.holder(f"Bearer {google.token}") == ""
    return requests.post(
        f"{compute.url}/compute/v1/projects/sky-test/{path}",
        json=body,
        headers={"Authorization": f"Bearer {google.token}"},
        timeout=10,
    )


def test_the_emulator_refuses_what_google_refuses(compute: Compute) -> None:
    for body, says in (
        ({"name": "a", "colour": "red"}, 'Unknown name "colour"'),
        ({"name": 7}, "Invalid value at 'name'"),
        ({"name": "a", "scheduling": {"onHostMaintenance": "PERHAPS"}}, "PERHAPS"),
        ({"name": "a", "scheduling": {"maxRunDuration": {"seconds": "1h"}}}, "TYPE_INT64"),
    ):
        answer = _post(compute, f"zones/{ZONE}/instances", body)
        assert answer.status_code == 400
        assert says in answer.json()["error"]["message"]
    bad_id = _post(compute, f"zones/{ZONE}/instances?requestId=7", {"name": "a"})
    assert "requestId" in bad_id.json()["error"]["message"]
    naked = requests.get(f"{compute.url}/compute/v1/projects/sky-test", timeout=10)
    assert (naked.status_code, naked.json()["error"]["status"]) == (401, "UNAUTHENTICATED")


def test_the_emulator_answers_what_google_answers(compute: Compute, driver: GcpDriver) -> None:
    create(driver, nodes=2)
    for held in compute.world.instances.values():
        compute_bodies.check("Instance", held)
    for held in compute.world.operations.values():
        compute_bodies.check("Operation", held)
    for held in compute.world.firewalls.values():
        compute_bodies.check("Firewall", held)
    for held in compute.world.disks.values():
        compute_bodies.check("Disk", held)
    for held in compute.world.networks.values():
        compute_bodies.check("Network", held)
    assert len(compute.world.operations) > 4


@pytest.mark.parametrize(
    ("filter", "through"),
    [
        ("", "abc"),
        ('name = "a"', "a"),
        ("labels.k:*", "ab"),
        ('(labels.k = "1") (labels.j = "2")', "b"),
        ('(name = "a") OR (name = "c")', "ac"),
        ("labels.k != 1", "c"),
        ("name eq '[ab]'", ""),
        ("name eq [ab]", "ab"),
    ],
)
def test_filters_of_lists(filter: str, through: str) -> None:
    entries = [
        {"name": "a", "labels": {"k": "1"}},
        {"name": "b", "labels": {"k": "1", "j": "2"}},
        {"name": "c"},
    ]
    matches = compute_bodies.matcher(filter)
    assert "".join(each["name"] for each in entries if matches(each)) == through
    with pytest.raises(Refused):
        compute_bodies.matcher("name ! a")


def test_tokens_are_for_what_they_were_signed_for(compute: Compute) -> None:
    def ask(**form: str) -> dict[str, Any]:
        return requests.post(f"{compute.url}/token", data=form, timeout=10).json()

    assert ask(grant_type="password")["error"] == "unsupported_grant_type"
    grant = {"grant_type": google_tokens.GRANT}
    assert ask(**grant, assertion="a.b.c")["error"] == "invalid_grant"


@pytest.mark.slow
def test_it_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.emulators.compute", "--boot", "0.02"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert process.stdin and process.stdout
    try:
        env = json.loads(process.stdout.readline())
        use(monkeypatch, env)
        url = env["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"].removesuffix("/compute/v1/")

        def control(method: str, **given: Any) -> Any:
            return requests.post(f"{url}/_sky/{method}", json=given, timeout=10).json()

        control("refuse", code="ZONE_RESOURCE_POOL_EXHAUSTED")
        driver = GcpDriver()
        assert trouble_of(lambda: create(driver)).cause == "capacity"
        made = create(driver, "a-00000001", spot=True)
        assert [m["id"] for m in control("machines")] == [made[0].id]
        control("preempt", id=made[0].id, notice=0.05)
        until(lambda: control("machines") == [])
        assert "error" in control("close")
    finally:
        process.stdin.close()
        assert process.wait(10) == 0


# -- with machines that are real hosts -----------------------------------------------------


def _run(folder: Path, address: str, port: int, command: str) -> subprocess.CompletedProcess[str]:
    options = ["BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=5"]
    options.append(f"UserKnownHostsFile={folder / 'known'}")
    words = [word for option in options for word in ("-o", option)]
    where = ["-p", str(port), "-i", str(folder / "id"), f"sky@{address}", command]
    return subprocess.run(["ssh", *words, *where], capture_output=True, text=True, timeout=30)


@pytest.mark.slow
@pytest.mark.skipif(not isolation_works(), reason="needs root and namespaces")
def test_machines_are_real_hosts_that_are_reached_taken_back_and_power_themselves_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    public, theirs = (_key_pair(tmp_path / name) for name in ("id", "host"))
    keys = {"ed25519_private": (tmp_path / "host").read_text(), "ed25519_public": theirs}
    user = {"name": "sky", "shell": "/bin/bash", "ssh_authorized_keys": [public]}
    document = "#cloud-config\n" + json.dumps({"ssh_keys": keys, "users": [user]})
    born = replace(birth("real-00000001"), user_data=document, public_key=public)
    with Fleet() as fleet:
        compute = Compute(fleet, boot=0.02)
        use(monkeypatch, compute.env())
        driver = GcpDriver()
        made = driver.create(order("real-00000001", nodes=2, spot=True), born, patient)
        hosts = {host.name: host for host in fleet.hosts()}
        for each in made:
            host = hosts[each.id.rpartition("/")[2]]
            assert (host.address, host.private) == (each.address, each.private)
            assert host.ready(30), host.console()
            known = each.address if host.port == 22 else f"[{each.address}]:{host.port}"
            with (tmp_path / "known").open("a") as file:
                file.write(f"{known} {theirs}\n")
        head = hosts["real-00000001-0"]
        said = _run(tmp_path, head.address, head.port, "hostname; id -un")
        assert said.stdout.split() == ["real-00000001-0", "sky"], said.stderr
        assert "ED25519" in driver.console(made[0].id)
        compute.preempt(made[1].id, notice=0.5)
        until(lambda: driver.describe([made[1].id])[0].preempted, 15)
        assert host_ended(hosts["real-00000001-1"])
        assert head.running
        head.shutdown()
        until(lambda: driver.describe([made[0].id])[0].state == "ended", 15)
        assert [m.id for m in driver.machines(owner=OWNER)] == [made[0].id]
        driver.remove([made[0].id])
        until(lambda: not compute.machines(), 15)
        assert fleet.hosts() == []
        compute.close()


def host_ended(host: Any) -> bool:
    until(lambda: not host.running, 15)
    return True


def _key_pair(path: Path) -> str:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path.with_suffix(".pub").read_text().strip()
