"""Instance information, as a task, its threads and its subprocesses read it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError, asdict
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.engines.node import instance
from jupyter_sky.machines.engines.node.instance import InstanceInfo, Peer, instance_info

PEERS = (Peer(0, "10.0.0.4"), Peer(1, "10.0.0.5"))
INFO = InstanceInfo(1, 2, "10.0.0.4", 23456, "train", "A100", 8, PEERS, workers_per_node=2)
TOPOLOGY: dict[str, Any] = {"instance": asdict(INFO), "facts": {"a": 1}}

pytestmark = pytest.mark.usefixtures("no_task_yet")


def test_instance_info_off_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMPUTE_POOL", raising=False)
    info = instance_info()
    assert (info.node, info.total_nodes, info.is_head, instance.is_head()) == (0, 1, True, True)
    assert [*info.peers] == [Peer(0, "127.0.0.1")] and instance.pool_facts() == {}
    assert info.variables()["WORLD_SIZE"] == "1"


def test_in_a_task() -> None:
    with instance.running_task({**TOPOLOGY, "worker": 1}):
        info = instance_info()
        assert info.worker == 1 and info.global_worker_index == 3 and info.total_workers == 4
        assert info.total_accelerators == 16 and not info.is_head and info.hostname
        assert instance.pool_facts()["facts"] == {"a": 1}
        with pytest.raises(FrozenInstanceError):
            info.node = 0  # type: ignore[misc]
    assert instance_info() == INFO, "what the task has started goes on there"


def test_variables_of_torchrun_and_skypilot() -> None:
    with instance.running_task(TOPOLOGY):
        code = """if True:
        import os
        from jupyter_sky.machines.engines.node.instance import instance_info
        names = "MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK SKYPILOT_NODE_RANK"
        print(*[os.environ[n] for n in names.split()], os.environ["SKYPILOT_NUM_NODES"])
        print(os.environ["SKYPILOT_NODE_IPS"].split(), os.environ["SKYPILOT_NUM_GPUS_PER_NODE"])
        print(instance_info().peers[1].private_ip)
        """
        told = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    assert told.stdout.splitlines() == [
        "10.0.0.4 23456 1 2 0 1 2",
        "['10.0.0.4', '10.0.0.5'] 8",
        "10.0.0.5",
    ], told.stderr


def test_user_environment_variables_are_kept() -> None:
    with instance.running_task(TOPOLOGY):
        os.environ["MASTER_PORT"] = "1"
    with instance.running_task(dict(TOPOLOGY)):
        assert os.environ["MASTER_PORT"] == "1"
    grown = asdict(INFO) | {"total_nodes": 3}
    with instance.running_task({**TOPOLOGY, "instance": grown}):
        assert os.environ["WORLD_SIZE"] == "3" and os.environ["MASTER_PORT"] == "23456"


def test_threads_side_by_side() -> None:
    seen: dict[int, list[int]] = {0: [], 1: []}
    both = threading.Barrier(2)

    def task(worker: int) -> None:
        with instance.running_task({**TOPOLOGY, "worker": worker}):
            for _ in range(50):
                both.wait(5)
                seen[worker].append(instance_info().worker)

    threads = [threading.Thread(target=task, args=(worker,)) for worker in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert seen == {0: [0] * 50, 1: [1] * 50}


def test_a_thread_of_a_task_knows_its_node() -> None:
    seen = []
    with instance.running_task(TOPOLOGY):
        thread = threading.Thread(target=lambda: seen.append(instance_info().node))
        thread.start()
        thread.join()
    assert seen == [1]


@pytest.mark.parametrize("text", ["{", "[]", '{"nodes": 3}'])
def test_invalid_pool_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPUTE_POOL", text)
    with pytest.raises(SkyError, match="COMPUTE_POOL does not describe a pool"):
        instance_info()
