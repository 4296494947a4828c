"""Places of new clusters."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.execution.clusters.cluster_fit import (
    describe_second_cluster,
    missing_labels,
    preferred,
)
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.machines.provisioner import placement
from tests.conftest import WAIT, Notebook


def test_among_several_offers_the_optimizer_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `sky.plan` does; where there is one offer, nothing has to be decided or loaded."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    here = [
        Offer("ssh", "rack", name, 8, 32, price=price)
        for name, price in (("old", 0.40), ("new", 0.15), ("borrowed", 0.90))
    ]
    monkeypatch.setattr(placement, "on_premises_offers", lambda resources: here)
    monkeypatch.setattr(clouds, "provider_names", tuple)
    choice = placement.decide_placement(Resources.parse(cpus="4+"))
    assert choice.planned is not None and choice.offer.instance_type == "new"
    monkeypatch.setattr(placement, "on_premises_offers", lambda resources: here[:1])
    choice = placement.decide_placement(Resources())
    assert choice.planned is None and choice.offer.instance_type == "old"


def test_a_request_goes_to_the_oldest_cluster_that_meets_it() -> None:
    """As it did in the kernel before, however the notebook came to have another one since."""
    old, new = row("old", 1), replace(row("new", 1), created=2.0)
    assert [each.name for each in preferred([new, old])] == ["old", "new"]
    assert [each.name for each in preferred([new, old], {"new"})] == ["new", "old"]


# -- beside a cluster that is up -------------------------------------------------------------------


def row(name: str, nodes: int) -> ClusterRow:
    offer = asdict(Offer("local", "this-machine", "x86_64", 2, 4, price=0.0))
    place = ("local", "this-machine", "x86_64", False, 0.0)
    return ClusterRow(name, "up", *place, nodes, "", offer, [], {}, "a.ipynb", 1.0, 60.0, "", "")


def test_a_second_cluster_is_announced_with_its_reason() -> None:
    need = Resources.parse(nodes="3")
    assert describe_second_cluster(need, []) == ""
    assert describe_second_cluster(need, [row("one", 1)]) == (
        "starts a second cluster of 3 nodes beside one, because one has 1 node; "
        "%sky down one ends the first"
    )
    assert describe_second_cluster(Resources.parse(cpus="8+"), [row("one", 1), row("two", 2)]) == (
        "starts another cluster beside one and two, because one does not meet --cpus 8+ and two "
        "does not meet --cpus 8+; %sky down one ends one"
    )


@pytest.mark.parametrize("asked", [{"cpus": "1"}, {"memory": "2"}, {"cpus": "1+", "memory": "4"}])
def test_a_running_cluster_takes_cells_that_ask_for_less(asked: dict[str, str]) -> None:
    need = Resources.parse(**asked)
    assert missing_labels(need, row("two-cpus", 1)) == []
    assert describe_second_cluster(Resources.parse(cpus="4"), [row("two-cpus", 1)]) == (
        "starts a second cluster beside two-cpus, because two-cpus does not meet --cpus 4; "
        "%sky down two-cpus ends the first"
    )


def test_containers_of_another_image_do_not_take_a_cell() -> None:
    offer = asdict(Offer("container", "this-machine", "2cpu-4gib", 2, 4, price=0.0))
    asked = "--cloud container --image python:3.12 --on-demand"
    up = replace(row("one", 1), cloud="container", offer=offer, resources=asked)
    assert missing_labels(Resources.parse(image="python:3.12"), up) == []
    assert missing_labels(Resources.parse(), up) == []
    assert missing_labels(Resources.parse(image="python:3.1"), up) == ["--image python:3.1"]
    here = row("here", 1)
    assert missing_labels(Resources.parse(image="python:3.1"), here) == ["--image python:3.1"]


@pytest.mark.slow
def test_less_runs_on_the_cluster_that_is_up_and_a_second_one_is_announced(
    notebook: Notebook,
) -> None:
    assert "second cluster" not in notebook.run("%%sky\nx = 20").status_line
    dry = notebook.run("%%sky --cpus 1 --dry-run\n1").result
    assert "which is up" in dry and "second cluster" not in dry
    assert notebook.run("%%sky --cpus 1\nprint(x)").stdout == "20\n"
    said = "starts a second cluster of 2 nodes beside analysis-"
    dry = notebook.run("%%sky --nodes 2 --dry-run\n1").result
    assert said in dry and "ends the first" in dry
    ran = notebook.run("%%sky --nodes 2\nprint('printed')")
    shown = [str(message["content"]) for message in ran.messages]
    told = next(at for at, text in enumerate(shown) if said in text)
    printed = [at for at, text in enumerate(shown) if "'name': 'stdout'" in text]
    assert told < printed[0]
    assert said in ran.status_line


@pytest.mark.slow
def test_no_second_cluster_is_announced_where_nothing_can_be_launched(notebook: Notebook) -> None:
    notebook.run("%%sky\nx = 20")
    refused = notebook.run("%%sky --region eu-wets-1\nprint(x)")
    assert refused.ename == "SkyNoOffer"
    assert "beside" not in refused.status_line, refused.status_line
    again = notebook.run("%%sky --nodes 2\n1")
    assert "second cluster" not in again.status_line
    pool = notebook.run("import jupyter_sky as sky\npool = sky.up(nodes=3)")
    assert "starts another cluster of 3 nodes beside analysis-" in pool.stdout
    assert "another cluster" not in notebook.run("pool = sky.up(nodes=3)").stdout


@pytest.mark.slow
def test_cell_beside_the_end_of_its_cluster_waits_for_it_and_starts_another(
    fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a cell that is run just after *End cluster* in the panel, or ``jupyter sky down``."""
    notebook = fresh("ended.ipynb")
    assert notebook.run("%%sky\nx = 20").status == "ok"
    store = Store.open(fresh.data)
    [row] = store.clusters()
    store.set_cluster_note(row.id, "ended by you in the panel")
    sent = notebook.send("%%sky\nprint('x' in globals())")
    card = ""
    while "is being ended" not in card:
        card = str(notebook.client.get_iopub_msg(timeout=WAIT)["content"])
    monkeypatch.setenv("SKY_DATA_DIR", str(fresh.data))
    ClusterRegistry(store, "", "panel").records.terminate_row(row, "ended by you in the panel")
    ran = notebook.collect(sent)
    assert ran.status == "ok", ran
    assert ran.stdout == "False\n"
    assert "has ended (ended by you in the panel); its variables are gone" in ran.status_line
