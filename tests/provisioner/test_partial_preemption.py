"""A cluster of several machines of which one is taken back: boto3 against EC2's emulator."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from jupyter_sky import tracker
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.store.store import Store
from jupyter_sky.clouds import LaunchRequest
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.machines.provisioner.placement import decide_placement
from tests.conftest import wait_until
from tests.emulators.ec2 import Ec2
from tests.store.rows import CLUSTER


@pytest.mark.parametrize("rank", [0, 2])
def test_survivors_of_a_preempted_cluster_are_observed_too(
    aws: tuple[Ec2, Launcher], tmp_path: Path, rank: int
) -> None:
    account, cloud = aws
    need = Resources.parse(cloud="aws", cpus="4+", spot=True, nodes="4")
    offer = decide_placement(need).offer
    order = LaunchRequest("train-1", "train", offer, need, 60.0, "me-1", "a.ipynb")
    machines = cloud.launch(order)
    wait_until(lambda: {m.state for m in cloud.describe([m.id for m in machines])} == {"running"})
    row = replace(
        CLUSTER,
        nodes=4,
        offer=asdict(offer),
        machines=[asdict(machine) for machine in machines],
        connection={**CLUSTER.connection, "token": "train-1"},
        created=time.time(),
    )
    store = Store.open(tmp_path)
    store.save_cluster(row)
    clusters = ClusterRegistry(store, "a.ipynb", "s1")
    account.preempt(machines[rank].id)
    wait_until(lambda: not clusters.records.reconcile())
    seen = Counter(one.kind for one in tracker.current().observations())
    assert seen == {"preempted": 1, "ended": 3}
    store.close()
