"""Google Cloud, by its real SDK over HTTPS, against an emulator of Compute Engine."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from jupyter_sky.clouds.gcp import instances as machine
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches.launcher import Launcher, launch_machines
from jupyter_sky.clouds.provider import naming
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
from tests.emulators.gce import Compute

pytest_plugins = ["tests.clouds.gcp_fixtures"]


@pytest.mark.parametrize("nodes", [1, 4])
def test_machines_are_made_described_and_removed(
    compute: Compute, provider: Gcp, nodes: int
) -> None:
    made = create(provider, nodes=nodes)
    assert [m.id for m in made] == [f"{ZONE}/train-3f2a91c0-{rank}" for rank in range(nodes)]
    assert [m.rank for m in made] == list(range(nodes))
    seen = provider.describe([m.id for m in made])
    assert {m.id for m in seen} == {m.id for m in made}
    for each in seen:
        assert (each.cloud, each.state, each.cluster) == ("gcp", "running", "train")
        assert (each.token, each.owner) == ("train-3f2a91c0", OWNER)
        assert each.lease_end == 1_800_000_000
        assert each.address.startswith("192.0.2.") and each.private.startswith("10.128.")
        assert abs(each.started - time.time()) < 60
    assert len({m.address for m in seen} | {m.private for m in seen}) == 2 * nodes
    provider.terminate([m.id for m in made])
    provider.terminate([m.id for m in made])  # what is being removed is no error
    until(lambda: not compute.machines())
    provider.terminate([m.id for m in made])  # nor is what is gone
    assert provider.describe([m.id for m in made]) == []
    assert compute.world.disks == {}


def test_a_machine_ends_by_itself_whatever_happens_here(compute: Compute, provider: Gcp) -> None:
    spot = create(provider, "spot-00000001", spot=True, lease=3600.5)[0]
    plain = create(provider, "plain-00000001", lease=200 * DAY)[0]
    plans = [instance(compute, each.id)["scheduling"] for each in (spot, plain)]
    assert [plan["provisioningModel"] for plan in plans] == ["SPOT", "STANDARD"]
    assert [plan["maxRunDuration"]["seconds"] for plan in plans] == ["3601", str(120 * 86400)]
    for each, plan in zip((spot, plain), plans, strict=True):
        assert plan["instanceTerminationAction"] == "DELETE"
        assert plan["automaticRestart"] is False
        assert all(disk["autoDelete"] for disk in instance(compute, each.id)["disks"])
    assert plans[0]["onHostMaintenance"] == "TERMINATE"
    assert "onHostMaintenance" not in plans[1]
    assert provider.self_delete_script(order()) == ""


def test_the_cloud_itself_deletes_a_machine_at_the_end_of_its_lease(
    compute: Compute, provider: Gcp
) -> None:
    compute.world.minute = 0.1
    short, long = create(provider, "short-00000001", lease=600)[0], create(provider, lease=DAY)[0]
    until(lambda: short.id not in {m["id"] for m in compute.machines()})
    assert provider.describe([short.id, long.id])[0].id == long.id
    assert compute.expire(time.time() + 3600) == []
    assert compute.expire(time.time() + DAY + 60) == ["train-3f2a91c0-0"]
    assert provider.machines(owner=OWNER) == []


def test_initial_configuration_of_a_machine(compute: Compute, provider: Gcp) -> None:
    made = create(provider)[0]
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
    assert disk["sourceImage"] == machine.UBUNTU_IMAGE.format("amd64")
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
    compute: Compute, provider: Gcp, offer: dict[str, str], image: str, disk: str
) -> None:
    zone = {"t2a": "europe-west4-a", "c4-": "asia-east1-a"}[offer["instance_type"][:3]]
    made = create(provider, zone=zone, region=zone[:-2], **offer)[0]
    params = instance(compute, made.id)["disks"][0]["initializeParams"]
    assert params["sourceImage"].endswith(image)
    assert params["diskType"] == f"zones/{zone}/diskTypes/{disk}"


def test_gpus_come_attached_or_with_the_machine(compute: Compute, provider: Gcp) -> None:
    v100 = {"instance_type": "n1-standard-8+V100:1", "gpu": "V100", "gpu_count": 1}
    a100 = {"instance_type": "a2-highgpu-1g", "gpu": "A100", "gpu_count": 1}
    attached = instance(compute, create(provider, "v-00000001", **v100)[0].id)
    bundled = instance(compute, create(provider, "a-00000001", **a100, spot=True)[0].id)
    assert attached["machineType"].endswith(f"zones/{ZONE}/machineTypes/n1-standard-8")
    gpu = f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-v100"
    assert attached["guestAccelerators"] == [{"acceleratorType": gpu, "acceleratorCount": 1}]
    assert not bundled.get("guestAccelerators")
    for each in (attached, bundled):
        assert each["scheduling"]["onHostMaintenance"] == "TERMINATE"
        assert each["disks"][0]["initializeParams"]["sourceImage"] == machine.DEEP_LEARNING_IMAGE


def test_the_same_order_gets_the_same_zone_and_one_that_sells_it(
    compute: Compute, provider: Gcp
) -> None:
    once = create(provider, zone=None)[0].id
    assert once.startswith("us-central1-")
    assert create(provider, zone=None)[0].id == once
    others = {create(provider, f"other-{n:08x}", zone=None)[0].id.split("/")[0] for n in range(8)}
    assert len(others) > 1
    gpu = {"instance_type": "n1-standard-8+P4:1", "gpu": "P4", "gpu_count": 1, "zone": None}
    zones = {zone for zone, sold in machines_sold().items() if "nvidia-tesla-p4" in sold}
    assert create(provider, "p-00000001", **gpu)[0].id.split("/")[0] in zones
    gone = trouble_of(lambda: create(provider, "no-00000001", zone=None, instance_type="n0-none-1"))
    assert gone.cause == "invalid" and "no zone of us-central1 has n0-none-1" in gone.message


def machines_sold() -> dict[str, set[str]]:
    from tests.emulators.gce_state import sold

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
    compute: Compute, provider: Gcp, code: str, cause: str, width: str
) -> None:
    compute.refuse(code)
    trouble = trouble_of(lambda: create(provider, nodes=4))
    assert (trouble.cause, trouble.scope) == (cause, width)
    assert trouble.code == code.partition(":")[0]
    if quota := code.partition(":")[2]:
        assert quota in trouble.message and quota in trouble.fix
    until(lambda: not compute.machines())
    assert compute.world.disks == {}


def test_a_place_that_refused_an_order_may_take_it_later(compute: Compute, provider: Gcp) -> None:
    compute.refuse("ZONE_RESOURCE_POOL_EXHAUSTED", times=3)
    for _ in range(3):
        assert trouble_of(lambda: create(provider)).cause == "capacity"
    assert create(provider)[0].state == "running"
    assert len(compute.machines()) == 1


def test_refusals_hold_for_what_they_say(compute: Compute, provider: Gcp) -> None:
    compute.refuse("ZONE_RESOURCE_POOL_EXHAUSTED", zone=ZONE, spot=True, times=99)
    assert trouble_of(lambda: create(provider, "a-00000001", spot=True)).cause == "capacity"
    assert create(provider, "b-00000001", spot=False)
    assert create(provider, "c-00000001", spot=True, zone="us-central1-b")


# -- counted once --------------------------------------------------------------------------


def test_a_lost_answer_makes_no_second_machine(
    compute: Compute, provider: Gcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert, asked = compute.world.insert, list[Any]()

    def noting(zone: str, body: Any, request_id: str | None, fails: str = "") -> Any:
        asked.append(request_id)
        return insert(zone, body, request_id, fails)

    monkeypatch.setattr(compute.world, "insert", noting)
    compute.lose("create", times=2)
    assert trouble_of(lambda: create(provider, nodes=4)).cause == "transient"
    assert len(compute.machines()) == 4  # they are waited for, not removed
    made = create(provider, nodes=4)
    assert [m.rank for m in made] == [0, 1, 2, 3]
    assert len(compute.machines()) == 4
    assert len(asked) == 8 and len(set(asked)) == 4 and all(asked)


def test_a_doubled_request_makes_no_second_machine(compute: Compute, provider: Gcp) -> None:
    compute.double("create", times=4)
    assert len(create(provider, nodes=4)) == 4
    assert len(compute.machines()) == 4
    compute.double("network", times=3)
    compute.double("remove", times=4)
    provider.terminate([each["id"] for each in compute.machines()])
    until(lambda: not compute.machines())


def test_an_order_that_was_removed_can_be_sent_again(compute: Compute, provider: Gcp) -> None:
    made = create(provider)
    compute.world.boot = 0.5
    provider.terminate([m.id for m in made])
    busy = trouble_of(lambda: create(provider))  # its name is still taken
    assert busy.cause == "transient"
    until(lambda: not compute.machines())
    assert create(provider)[0].started >= made[0].started


def test_a_machine_of_that_name_that_is_not_ours_is_not_taken(
    compute: Compute, provider: Gcp
) -> None:
    made = create(provider)[0]
    items = instance(compute, made.id)["metadata"]["items"]
    next(item for item in items if item["key"] == naming.TOKEN)["value"] = "another"
    with_other_id = order(spot=True)
    assert (
        trouble_of(lambda: launch_machines(provider, with_other_id, machine_config())).code
        == "alreadyExists"
    )


def test_answers_lost_while_waiting_are_asked_for_again(compute: Compute, provider: Gcp) -> None:
    compute.lose("poll", times=4)
    compute.world.boot = 0.3
    assert create(provider)[0].state == "running"


def test_giving_up_is_heard_within_a_moment(compute: Compute, provider: Gcp) -> None:
    compute.world.boot = 30.0
    beats: list[float] = []

    def tick() -> None:
        beats.append(time.monotonic())
        if len(beats) > 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch_machines(provider, order(), machine_config(), tick)
    gaps = [after - before for before, after in pairwise(beats)]
    assert sorted(gaps)[len(gaps) // 2] < 0.5


def test_notebook_that_gives_up_meanwhile_leaves_no_machine(
    compute: Compute, provider: Gcp
) -> None:
    compute.world.boot = 0.5

    def tick() -> None:
        if len(compute.machines()) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch_machines(provider, order(nodes=3), machine_config(), tick)
    until(lambda: not compute.machines())
    assert compute.world.disks == {}


def test_requests_that_are_throttled_or_lost_are_sent_again(compute: Compute) -> None:
    cloud = Launcher(Gcp())
    compute.throttle("create", times=1)
    compute.lose("create", times=1)
    made = cloud.call(lambda: create(cloud.provider, nodes=2))  # type: ignore[arg-type]
    assert [m.rank for m in made] == [0, 1]
    assert len(compute.machines()) == 2
