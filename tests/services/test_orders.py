"""Orders of Spark for the nodes of a cluster, and the state of a cluster whose nodes report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from jupyter_sky.engines.wire.messages import ClusterConfig, Content
from jupyter_sky.services.node_processes import ClusterSpark, NodeProcess
from jupyter_sky.services.orders import SparkOrder, read_state, spark_orders, write_state
from tests.conftest import wait_until


def config(tmp_path: Path, **more: object) -> ClusterConfig:
    made = {"directory": str(tmp_path), "cluster": "c", "nodes": 3, "idle": 60.0, **more}
    return made  # type: ignore[return-value]


def test_nodes_share_secrets_and_know_their_neighbours(tmp_path: Path) -> None:
    peers = ["127.0.0.1", "127.0.0.2", "127.0.0.2"]
    made = spark_orders(config(tmp_path, peers=peers, memory=4.0), "4.2.0", serial=2)
    assert [order.address for order in made] == peers
    assert [order.neighbours for order in made] == [1, 2, 2]
    assert {order.master.partition(":")[0] for order in made} == {"127.0.0.1"}
    assert len({(order.secret, order.token, order.master) for order in made}) == 1
    assert made[0].secret != made[0].token and len(made[0].secret) >= 32
    assert made == [SparkOrder(**json.loads(json.dumps(order.to_dict()))) for order in made]


def test_secrets_differ_from_start_to_start(tmp_path: Path) -> None:
    first, second = (spark_orders(config(tmp_path), "4.2.0", serial)[0] for serial in (1, 2))
    assert first.secret != second.secret and first.token != second.token


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    (order, *__) = spark_orders(config(tmp_path), "4.2.0", 1)
    assert order.secret not in repr(order) and order.token not in repr(order)


def test_cluster_is_as_far_as_its_last_node(tmp_path: Path) -> None:
    sent: dict[int, Content] = {}
    states: dict[int, Content] = {}
    elsewhere = config(tmp_path, elsewhere=[0, 1, 2])
    cluster = ClusterSpark(elsewhere, sent.__setitem__, lambda: states)
    assert cluster.request("4.2.0", start=False)["state"] == ""
    assert cluster.request("4.2.0", start=True)["state"] == "starting"
    assert sorted(sent) == [0, 1, 2]

    serial = sent[0]["serial"]
    states.update({rank: {"state": "ready", "serial": serial} for rank in (0, 1)})
    states[2] = {"state": "installing", "detail": "Java", "serial": serial}
    assert cluster.request("4.2.0", start=True)["detail"] == "Java"
    states[2] = {"state": "ready", "serial": serial}
    assert cluster.request("4.2.0", start=True)["state"] == "ready"
    assert sent[0]["serial"] == serial, "what runs is not started again"


def test_failure_is_told_and_the_next_request_starts_anew(tmp_path: Path) -> None:
    sent: dict[int, Content] = {}
    states: dict[int, Content] = {}
    elsewhere = config(tmp_path, elsewhere=[0], nodes=1)
    cluster = ClusterSpark(elsewhere, sent.__setitem__, lambda: states)
    cluster.request("4.2.0", start=True)
    states[0] = {"state": "failed", "detail": "no Java", "serial": sent[0]["serial"]}
    assert cluster.request("4.2.0", start=False)["detail"] == "no Java"
    before = sent[0]
    assert cluster.request("4.2.0", start=True)["state"] == "starting", "an old report counts not"
    assert sent[0]["serial"] == before["serial"] + 1 and sent[0]["token"] != before["token"]


def test_node_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process of a node that is too small for Spark."""
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    (order,) = spark_orders(config(tmp_path, nodes=1, memory=1.2), "4.2.0", serial=1)
    process = NodeProcess(order)
    try:
        wait_until(lambda: process.state()["state"] == "failed")
        told = process.state()
    finally:
        process.kill()
    assert "does not fit into 1.2 GiB" in told["detail"]
    assert told["hint"] == "ask for more: --memory 3+"


def test_state_is_for_this_user_alone(tmp_path: Path) -> None:
    (order, *__) = spark_orders(config(tmp_path), "4.2.0", 1)
    assert read_state(order.folder) is None
    order.folder.mkdir(parents=True)
    write_state(order, "failed", "why", "what helps")
    assert read_state(order.folder) == {"state": "failed", "detail": "why", "hint": "what helps"}
    assert (order.folder / "state.json").stat().st_mode & 0o77 == 0
