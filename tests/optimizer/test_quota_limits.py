"""Plans keep within the quotas of accounts, and say what they left out for them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyNoPlan
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.knowledge.tracker.quotas import AccountQuota, write_quotas

EAST = {"cloud": "aws", "region": "us-east-1", "on_demand": True}
PAGE = "https://us-east-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/L-417A185B"


def limit(
    folder: Path, vcpus: float, *families: str, region: str = "us-east-1", spot: bool | None = None
) -> None:
    """Let the account's quota of some families be so many vCPUs."""
    name = f"Running On-Demand {families[0].upper()} instances"
    quota = AccountQuota("aws", name, vcpus, "vcpus", region, families, spot, PAGE)
    write_quotas(folder, "aws", [quota], time.time())


def test_machines_above_a_quota_are_left_out_and_the_plan_says_so(
    own_data: None, tmp_path: Path
) -> None:
    before = plan(gpus="V100", **EAST)
    assert before.tasks[0].offer.instance_type == "p3.2xlarge"
    limit(tmp_path, 4, "p")
    with pytest.raises(SkyNoPlan, match="the quotas of your accounts") as caught:
        plan(gpus="V100", **EAST)
    hint = str(caught.value.hint)
    assert "needs 8 vCPUs: the quota Running On-Demand P instances in us-east-1 is 4 vCPUs" in hint
    assert f"raise it: {PAGE}" in hint
    elsewhere = plan(gpus="V100", cloud="aws", on_demand=True)
    assert elsewhere.tasks[0].offer.region != "us-east-1"
    assert plan(gpus="V100", tracked=False, **EAST).usd == before.usd
    limit(tmp_path, 8, "p")
    again = plan(gpus="V100", **EAST)
    assert again.usd == before.usd and not any("quota" in note for note in again.notes)


def test_cheaper_machines_that_only_a_quota_leaves_out_are_named(
    own_data: None, tmp_path: Path
) -> None:
    free = plan(cpus="4+", memory="16+", **EAST)
    family = "standard"
    limit(tmp_path, 2, family)
    bound = plan(cpus="4+", memory="16+", **EAST)
    assert bound.usd > free.usd
    (note,) = [note for note in bound.notes if "quota" in note]
    assert note.startswith("left out, though cheaper, with ") and free.tasks[0].offer.place in note
    assert "Running On-Demand STANDARD instances in us-east-1 is 2 vCPUs" in note and PAGE in note


def test_all_machines_of_a_request_count_together(own_data: None, tmp_path: Path) -> None:
    limit(tmp_path, 16, "p")
    assert plan(gpus="V100", nodes=2, **EAST).tasks[0].nodes == 2
    with pytest.raises(SkyNoPlan) as caught:
        plan(gpus="V100", nodes=3, **EAST)
    assert "3 x aws us-east-1" in str(caught.value.hint) and "24 vCPUs" in str(caught.value.hint)


def test_a_quota_of_spot_machines_leaves_others_alone(own_data: None, tmp_path: Path) -> None:
    limit(tmp_path, 0, "p", spot=True)
    assert not plan(gpus="V100", cloud="aws", region="us-east-1").tasks[0].offer.spot
    with pytest.raises(SkyNoPlan):
        plan(gpus="V100", cloud="aws", region="us-east-1", spot=True)


def test_a_quota_of_accelerators_counts_them(own_data: None, tmp_path: Path) -> None:
    quota = AccountQuota("gcp", "NVIDIA_V100_GPUS", 2, "gpus", "us-central1", ("V100",), None)
    write_quotas(tmp_path, "gcp", [quota], time.time())
    asked = {"cloud": "gcp", "region": "us-central1", "on_demand": True}
    assert plan(gpus="V100:2", **asked).tasks[0].offer.gpu_count == 2
    with pytest.raises(SkyNoPlan) as caught:
        plan(gpus="V100:4", **asked)
    assert "needs 4 GPUs: the quota NVIDIA_V100_GPUS in us-central1 is 2 GPUs" in str(
        caught.value.hint
    )


def test_tasks_of_a_graph_fit_by_themselves(own_data: None, tmp_path: Path) -> None:
    limit(tmp_path, 8, "p")
    with sky.Dag("two") as dag:
        first = sky.Task("first").set_resources({"gpus": "V100", **EAST})
        second = sky.Task("second").set_resources({"gpus": "V100", "nodes": 2, **EAST})
        first >> second
    with pytest.raises(SkyNoPlan, match="second"):
        plan(dag)
