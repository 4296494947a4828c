"""Form, dry run, plan, launch and pool send a request to the same offer at the same price."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky import clouds
from jupyter_sky.errors import SkyNoCapacity
from jupyter_sky.executor import cluster_launch
from jupyter_sky.executor import session as sessions
from jupyter_sky.functions.launch import ClusterLauncher
from jupyter_sky.offers import Offer
from tests.benchmarks.newcomer_parity import compare_requests, notebook


@pytest.fixture
def session(tmp_path: Path) -> Iterator[None]:
    with notebook(tmp_path):
        yield


@pytest.mark.slow
def test_requests_go_to_one_offer_at_one_price(tmp_path: Path) -> None:
    found = compare_requests(60, 15, tmp_path)
    assert not [one for one in found if one.differences]
    gone = [one.cloud for one in found]
    assert {"", "local", "ssh", "aws", "gcp", "azure"} <= set(gone), "every kind of answer came up"
    assert gone.count("") < 40


def test_a_pool_that_prefers_spot_machines_always_starts_and_says_so(
    session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clouds, "is_ready", lambda name: name in (*clouds.ON_PREMISES, "aws"))
    asked: list[Offer] = []

    def run(start: Any) -> Any:
        asked.append(start.order.offer)
        if start.order.offer.spot:
            raise SkyNoCapacity("no spot machines are left")
        return SimpleNamespace(row=start.row, link=SimpleNamespace(lost=False))

    monkeypatch.setattr(cluster_launch._LaunchAttempt, "run", run)
    resources, nodes, spec = sky.Compute(
        cloud="aws", region="us-east-1", accelerator="A10G:1", allocation="spot-if-available"
    )._choose(sessions.current())
    known = sessions.current().clusters
    start = ClusterLauncher(known, resources, spec.lease, spec.market)
    with pytest.warns(UserWarning, match="no spot machine could be had: it is on demand, "):
        cluster = start("pool", nodes.ready)
    *refused, taken = asked
    assert len(refused) > 4 and all(offer.spot for offer in refused) and not taken.spot
    assert cluster.row.price == taken.price
