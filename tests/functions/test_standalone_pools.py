"""Pools whose nodes do not speak with one another: each is a cluster of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from tests.conftest import wait_until

pytestmark = pytest.mark.slow

STANDALONE = sky.Options(cluster=False, scale_up_after=0.1, scale_down_after=0.5)


@sky.function
def rank_and_process(seconds: float = 0.0) -> tuple[int, int]:
    import time

    time.sleep(seconds)
    return sky.instance_info().node, os.getpid()


def test_each_node_is_a_cluster_of_its_own(data: Path) -> None:
    with sky.Compute(name="alone", nodes=2, options=STANDALONE) as pool:
        assert [cluster.row.name for cluster in pool.clusters] == ["alone", "alone-2"]
        assert [cluster.row.nodes for cluster in pool.clusters] == [1, 1]
        assert [rank for rank, _ in rank_and_process() @ pool] == [0, 1]
        assert sky.up("alone", vcpus=1, nodes=2, options=STANDALONE).clusters == pool.clusters
    assert "alone" not in str(sky.status())


def test_more_nodes_come_and_go_one_by_one(data: Path) -> None:
    with sky.Compute(name="grows", nodes=(1, 3), options=STANDALONE) as pool:
        calls = [rank_and_process(1.0) > pool for _ in range(9)]
        assert len({call.result(60)[1] for call in calls}) == 3
        assert {cluster.row.nodes for cluster in pool.clusters} == {1}
        wait_until(lambda: len(pool.ranks) == 1, "those that are idle leave")


def test_a_node_that_cannot_be_had_ends_the_others(data: Path) -> None:
    with sky.Compute(name="pair-2"):
        with pytest.raises(SkyUsageError, match="a cluster pair-2 is up already"):
            sky.Compute(name="pair", nodes=2, options=STANDALONE).up()
        up = str(sky.status())
        assert "pair-2" in up
        assert "pair" not in up.replace("pair-2", "")
