"""Form, dry run, plan, launch and pool send a request to the same offer at the same price."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyNoCapacity
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.execution.clusters import cluster_launch
from jupyter_sky.execution.functions.pools.launch import ClusterLauncher, choose_offer, excess_notes
from jupyter_sky.execution.sessions import session as sessions
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
        asked.append(start.request.offer)
        if start.request.offer.spot:
            raise SkyNoCapacity("no spot machines are left")
        return SimpleNamespace(row=start.row, link=SimpleNamespace(lost=False))

    monkeypatch.setattr(cluster_launch._LaunchAttempt, "run", run)
    (choice,) = sky.Compute(
        cloud="aws", region="us-east-1", accelerator="A10G:1", allocation="spot-if-available"
    )._choices()
    known = sessions.current().clusters
    start = ClusterLauncher(known, choice.resources, choice.spec.lease, choice.spec.market)
    with pytest.warns(UserWarning, match="no spot machine could be had: it is on demand, "):
        cluster = start("pool", choice.nodes.ready)
    *refused, taken = asked
    assert len(refused) > 4 and all(offer.spot for offer in refused) and not taken.spot
    assert cluster.row.price == taken.price


@pytest.mark.parametrize("selection", ["first", "cheapest"])
def test_a_refused_spec_gives_way_to_the_next(
    session: None, monkeypatch: pytest.MonkeyPatch, selection: Any
) -> None:
    """In the order of their prices, or in that in which they were given."""
    ready = (*clouds.ON_PREMISES, "aws", "gcp")
    monkeypatch.setattr(clouds, "is_ready", lambda name: name in ready)
    asked = list[str]()

    def run(start: Any) -> Any:
        asked.append(start.request.offer.cloud)
        if asked[-1] == asked[0]:
            error = SkyNoCapacity("none is left")
            error.cause = "permission"  # so that no other zone there is asked
            raise error
        return SimpleNamespace(row=start.row, link=SimpleNamespace(lost=False))

    monkeypatch.setattr(cluster_launch._LaunchAttempt, "run", run)
    monkeypatch.setattr(sky.Compute, "use_clusters", lambda self, clusters, *__: clusters[0])
    specs = [sky.Spec(provider=name, accelerator="A100") for name in ("aws", "gcp")]
    compute = sky.Compute(*specs, allocation="on-demand", selection=selection)
    with pytest.warns(UserWarning, match="the next alternative is asked"):
        taken = compute.up()
    dear, cheap = (choice.price for choice in sorted(compute._choices(), key=lambda c: -c.price))
    assert cheap < dear
    order = ["aws", "gcp"] if selection == "first" else ["gcp", "aws"]
    assert asked == order
    assert taken.row.cloud == order[1]


def test_an_accelerator_is_at_least_what_was_named(
    session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS sells A100 by the eight only."""
    monkeypatch.setattr(clouds, "is_ready", lambda name: name in (*clouds.ON_PREMISES, "aws"))
    compute = sky.Compute(provider=sky.AWS(), accelerator=sky.accelerators.A100(), nodes=4)
    (choice,) = compute._choices()
    _resources, decision = choose_offer(choice.spec, choice.nodes)
    assert (decision.offer.instance_type, decision.offer.gpu_count) == ("p4d.24xlarge", 8)
    (note,) = excess_notes(choice.resources, decision.offer)
    assert note.startswith("p4d.24xlarge has 8 A100, 1 was asked for: ")
    assert note.endswith("/h a machine")
