"""Observations of lifetimes from the ends of clusters."""

from __future__ import annotations

from dataclasses import replace

from jupyter_sky.clouds import Machine
from jupyter_sky.execution.clusters.cluster_records import observed_ends
from tests.store.rows import CLUSTER

ROW = replace(
    CLUSTER,
    nodes=3,
    machines=[{"id": f"i-{rank}", "started": 100.0 + rank} for rank in range(3)],
)


def machine(rank: int, ended: float | None, preempted: bool) -> Machine:
    return Machine(
        f"i-{rank}", "aws", "train", rank, "ended", 100.0 + rank, ended, preempted=preempted
    )


def test_one_loss_and_its_survivors_are_observed() -> None:
    told = [machine(0, 520.0, False), machine(1, 501.0, True), machine(2, 520.0, False)]
    assert observed_ends(ROW, told, 500.0) == [("ended", 400), ("preempted", 400), ("ended", 398)]


def test_every_loss_counts() -> None:
    told = [machine(rank, 500.0 + rank, True) for rank in range(3)]
    assert observed_ends(ROW, told, 500.0) == [("preempted", 400.0)] * 3


def test_released_machines_are_censored() -> None:
    assert observed_ends(ROW, [], 500.0) == [("ended", 400), ("ended", 399), ("ended", 398)]


def test_an_unknown_time_of_loss_is_the_end_of_the_cluster() -> None:
    told = [machine(1, None, True)]
    assert observed_ends(ROW, told, 500.0)[1] == ("preempted", 399.0)
    assert observed_ends(ROW, told, 50.0)[1] == ("preempted", 0.0), "clocks that differ"
