"""Orders of a data engine for the nodes of a cluster, and what its nodes report."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.machines.engines.node.ports import PORTS, free_port
from jupyter_sky.machines.engines.node.service_orders import (
    EngineOrder,
    engine_orders,
    read_state,
    write_state,
)
from jupyter_sky.machines.engines.node.service_processes import ClusterEngine, NodeProcess
from jupyter_sky.machines.engines.wire.messages import ClusterConfig
from tests.conftest import wait_until


def config(tmp_path: Path, **more: object) -> ClusterConfig:
    made = {"directory": str(tmp_path), "cluster": "c", "nodes": 3, "idle": 60.0, **more}
    return made  # type: ignore[return-value]


def test_nodes_share_secrets_and_know_their_neighbours(tmp_path: Path) -> None:
    peers = ["127.0.0.1", "127.0.0.2", "127.0.0.2"]
    made = engine_orders(config(tmp_path, peers=peers, memory=4.0), "spark", "4.2.0", serial=2)
    assert [order.address for order in made] == peers
    assert [order.neighbours for order in made] == [1, 2, 2]
    assert {order.master.partition(":")[0] for order in made} == {"127.0.0.1"}
    assert len({(order.secret, order.token, order.master) for order in made}) == 1
    assert made[0].secret != made[0].token and len(made[0].secret) >= 32
    assert made == [EngineOrder(**json.loads(json.dumps(order.to_dict()))) for order in made]


def test_secrets_differ_from_start_to_start(tmp_path: Path) -> None:
    first, *__ = engine_orders(config(tmp_path), "spark", "4.2.0", 1)
    second, *__ = engine_orders(config(tmp_path), "spark", "4.2.0", 2)
    assert first.secret != second.secret and first.token != second.token


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    (order, *__) = engine_orders(config(tmp_path), "spark", "4.2.0", 1)
    assert order.secret not in repr(order) and order.token not in repr(order)


def test_cluster_is_as_far_as_its_last_node(tmp_path: Path) -> None:
    sent: dict[int, JsonObject] = {}
    reports: dict[int, dict[str, JsonObject]] = {}
    elsewhere = config(tmp_path, elsewhere=[0, 1, 2])
    cluster = ClusterEngine("spark", elsewhere, sent.__setitem__, lambda: reports, set)
    assert cluster.request("4.2.0", start=False)["state"] == ""
    assert cluster.request("4.2.0", start=True)["state"] == "starting"
    assert sorted(sent) == [0, 1, 2]

    serial = sent[0]["serial"]
    ready = {"state": "ready", "serial": serial, "facts": {"version": "4.2.0"}}
    reports.update({rank: {"spark": ready, "ray": {"state": "failed"}} for rank in (0, 1)})
    reports[2] = {"spark": {"state": "installing", "detail": "Java", "serial": serial}}
    assert cluster.request("4.2.0", start=True)["detail"] == "Java"
    reports[2] = {"spark": {"state": "ready", "serial": serial}}
    told = cluster.request("4.2.0", start=True)
    assert told["state"] == "ready" and told["facts"] == {"version": "4.2.0"}, "of the first node"
    assert sent[0]["serial"] == serial, "what runs is not started again"


def test_failure_is_told_and_the_next_request_starts_anew(tmp_path: Path) -> None:
    sent: dict[int, JsonObject] = {}
    reports: dict[int, dict[str, JsonObject]] = {}
    elsewhere = config(tmp_path, elsewhere=[0], nodes=1)
    cluster = ClusterEngine("spark", elsewhere, sent.__setitem__, lambda: reports, set)
    cluster.request("4.2.0", start=True)
    failed = {"state": "failed", "detail": "no Java", "serial": sent[0]["serial"]}
    reports[0] = {"spark": failed}
    assert cluster.request("4.2.0", start=False)["detail"] == "no Java"
    before = sent[0]
    assert cluster.request("4.2.0", start=True)["state"] == "starting", "an old report counts not"
    assert sent[0]["serial"] == before["serial"] + 1 and sent[0]["token"] != before["token"]


def test_nobody_waits_for_a_node_that_is_lost(tmp_path: Path) -> None:
    """A node is lost before a start of the engine, and returns."""
    sent: dict[int, JsonObject] = {}
    reports: dict[int, dict[str, JsonObject]] = {}
    lost = {2}
    elsewhere = config(tmp_path, elsewhere=[0, 1, 2])
    cluster = ClusterEngine(
        "spark", elsewhere, sent.__setitem__, lambda: reports, lambda: frozenset(lost)
    )
    cluster.request("4.2.0", start=True)
    assert sorted(sent) == [0, 1]
    serial = sent[0]["serial"]
    reports.update({rank: {"spark": {"state": "ready", "serial": serial}} for rank in (0, 1)})
    assert cluster.request("4.2.0", start=True)["state"] == "ready"

    lost.clear()
    assert cluster.request("4.2.0", start=True)["state"] == "starting", "on the node that is back"
    assert sent[2]["serial"] == serial and sent[2]["token"] == sent[0]["token"]
    reports[2] = {"spark": {"state": "ready", "serial": serial}}
    assert cluster.request("4.2.0", start=True)["state"] == "ready"
    lost.add(1)
    reports[1] = {"spark": {"state": "starting", "serial": serial}}
    assert cluster.request("4.2.0", start=True)["state"] == "ready"


def test_nothing_is_ready_without_the_first_node(tmp_path: Path) -> None:
    sent: dict[int, JsonObject] = {}
    reports: dict[int, dict[str, JsonObject]] = {}
    lost = {0}
    elsewhere = config(tmp_path, elsewhere=[0, 1, 2])
    cluster = ClusterEngine("spark", elsewhere, sent.__setitem__, lambda: reports, lambda: lost)
    assert cluster.request("4.2.0", start=True)["state"] == "starting"
    assert sorted(sent) == [1, 2]
    ready = {"state": "ready", "serial": sent[1]["serial"]}
    reports.update({rank: {"spark": ready} for rank in (1, 2)})
    assert cluster.request("4.2.0", start=True)["state"] == "starting"
    lost.clear()
    cluster.request("4.2.0", start=True)
    reports[0] = {"spark": ready}
    assert cluster.request("4.2.0", start=True)["state"] == "ready" and sorted(sent) == [0, 1, 2]


@pytest.mark.parametrize(
    ("engine", "version", "least"), [("spark", "4.2.0", 3), ("dask", "", 2), ("ray", "", 3)]
)
def test_node_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, version: str, least: int
) -> None:
    """A real process of a node that is too small for a data engine."""
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    (order,) = engine_orders(config(tmp_path, nodes=1, memory=1.2), engine, version, serial=1)
    process = NodeProcess(order)
    try:
        wait_until(lambda: process.state()["state"] == "failed")
        told = process.state()
    finally:
        process.kill()
    assert f"{engine.capitalize()} does not fit into 1.2 GiB" in told["detail"]
    assert told["hint"] == f"ask for more: --memory {least}+"


def test_state_is_for_this_user_alone(tmp_path: Path) -> None:
    (order, *__) = engine_orders(config(tmp_path), "spark", "4.2.0", 1)
    assert read_state(order.folder) is None
    order.folder.mkdir(parents=True)
    write_state(order, "failed", "why", "what helps")
    assert read_state(order.folder) == {
        "state": "failed",
        "detail": "why",
        "hint": "what helps",
        "facts": {},
    }
    assert (order.folder / "state.json").stat().st_mode & 0o77 == 0


def test_port_is_free_and_none_of_connections() -> None:
    with socket.socket() as taken:
        port = free_port("127.0.0.1")
        assert port in PORTS
        taken.bind(("127.0.0.1", port))
        assert port not in {free_port("127.0.0.1") for __ in range(50)}
    first, __ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert PORTS[-1] < first, "another process could get it before it is used"


def test_head_of_ray_has_no_port_of_its_workers(tmp_path: Path) -> None:
    for order in engine_orders(config(tmp_path, gpus=("A100", 2)), "ray", "", serial=1):
        assert int(order.master.rpartition(":")[2]) not in range(10002, 20000)
        assert order.gpus == 2
