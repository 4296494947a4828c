"""Placement of requests: one's own machines first, spot only when asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky import clouds, tracker
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import (
    SkyClusterLost,
    SkyError,
    SkyNoCapacity,
    SkyNoOffer,
    SkyPreempted,
    SkyUnreachable,
    SkyUsageError,
)
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import LaunchRequest
from jupyter_sky.clouds.hyperstack import Hyperstack
from jupyter_sky.clouds.launches import launch_support
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.execution.cells.request import with_settings
from jupyter_sky.execution.clusters import cluster_launch
from jupyter_sky.execution.functions.images.specs import Nodes, Spec
from jupyter_sky.execution.functions.pools.launch import choose_offer
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.interfaces.forms.cell_line import Fields
from jupyter_sky.interfaces.forms.completion import CompletionContext
from jupyter_sky.interfaces.forms.expected_place import placement_text
from jupyter_sky.interfaces.magics import verbs
from jupyter_sky.interfaces.magics.dryrun import dry_run
from jupyter_sky.knowledge.catalog import load
from jupyter_sky.knowledge.ledger.ledger import format_rate
from jupyter_sky.knowledge.tracker import Place
from jupyter_sky.machines.provisioner import broker, placement, preview, provision
from jupyter_sky.machines.provisioner.placement import decide_placement
from tests.emulators.ec2 import Ec2
from tests.store.rows import CLUSTER

BOX = Offer("ssh", "pool", "box", 64, 256, price=0.0, source="hosts.toml")
DEAR = Offer("ssh", "pool", "dear", 64, 256, price=9.0, source="hosts.toml")
BIG = Resources.parse(cpus="64+")
"""More than the machine of the tests has."""


@pytest.fixture
def accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials for the three clouds, as far as anybody asks before a launch."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()
    asked = [name for name in clouds.provider_names() if find_facts(name).has_live_offers]
    monkeypatch.setattr(
        clouds, "is_ready", lambda name: name in clouds.launchable() and name not in asked
    )


def have(monkeypatch: pytest.MonkeyPatch, *own: Offer) -> None:
    """List machines of one's own."""
    monkeypatch.setattr(placement, "on_premises_offers", lambda need: list(own))


def quiet(stage: str, detail: str) -> None:
    """Report nothing."""


def refusing(*clouds_refusing: str, error: type[SkyError] = SkyNoCapacity) -> Callable[..., Offer]:
    """Make a launch that fails on some clouds."""

    def launch(offer: Offer) -> Offer:
        if offer.cloud in clouds_refusing:
            raise error(f"{offer.place}: its slot is taken")
        return offer

    return launch


# -- machines of one's own ---------------------------------------------------------------------


def test_own_machines_come_first_even_with_a_price(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, DEAR)
    assert decide_placement(BIG).offer is DEAR, "the clouds have cheaper ones"


def test_own_machines_that_are_taken_burst_to_clouds(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, BOX, DEAR)
    placed = broker.place(BIG, refusing("ssh"), quiet)
    assert placed.result.cloud in clouds.provider_names() and not placed.result.spot
    assert [attempt.offer for attempt in placed.attempts] == [BOX, DEAR]
    said = "; ".join(placed.notes)
    assert "no machine of your own could take it: a machine is rented, $" in said
    assert format_rate(placed.decision.price) in said and "its slot is taken" in said


@pytest.mark.parametrize("named", [("ssh",), ("ssh", "local")])
def test_a_request_for_own_machines_never_rents(
    accounts: None, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    have(monkeypatch, BOX, DEAR)
    need = Resources.parse(cpus="64+", cloud=",".join(named))
    with pytest.raises(SkyNoCapacity, match="slot is taken"):
        broker.place(need, refusing("ssh"), quiet)


def test_the_setting_of_own_clouds_never_rents(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Sky.load().cloud = "ssh"
    have(monkeypatch, BOX)
    options = with_settings(parse_cell_line("--cpus 64+", {}), Sky.load())
    with pytest.raises(SkyNoCapacity):
        broker.place(options.resources, refusing("ssh"), quiet)


def test_a_mistake_about_an_own_machine_does_not_rent_one(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, BOX)
    with pytest.raises(SkyUsageError):
        broker.place(BIG, refusing("ssh", error=SkyUsageError), quiet)


def test_a_burst_keeps_the_price_limit(accounts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, BOX)
    need = Resources.parse(cpus="64+", max_hourly_cost="0.01")
    with pytest.raises(SkyNoCapacity, match="slot is taken"):
        broker.place(need, refusing("ssh"), quiet)


# -- spot machines -----------------------------------------------------------------------------


def test_pools_take_what_a_cell_takes(accounts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The free machine here, and where it is too small one on demand."""
    _, here = choose_offer(Spec(vcpus=1), Nodes(1))
    assert here.offer.cloud == "local"
    _, rented = choose_offer(Spec(vcpus=64), Nodes(1))
    assert rented.offer == decide_placement(BIG).offer and not rented.offer.spot
    _, asked = choose_offer(Spec(vcpus=64, allocation="spot-if-available"), Nodes(1))
    assert asked.offer.spot


def test_the_cheapest_allocation_weighs_own_machines_and_both_markets(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, DEAR)
    _, rented = choose_offer(Spec(vcpus=64, allocation="cheapest"), Nodes(1))
    assert rented.offer.cloud in clouds.provider_names() and rented.offer.price < 9.0
    have(monkeypatch, BOX)
    _, free = choose_offer(Spec(vcpus=64, allocation="cheapest"), Nodes(1))
    assert free.offer is BOX


def test_a_setting_of_the_plan_alone_changes_nothing(accounts: None) -> None:
    made = sky.plan(cpus="64+", tracked=False)
    assert made.tasks[0].offer == decide_placement(BIG).offer and made.name == "--cpus 64+"
    soon = sky.plan(cpus="64+", minimize="time", deadline="2h")
    assert not soon.tasks[0].offer.spot and soon.tasks[0].offer.cloud in clouds.provider_names()


def test_pools_keep_the_settings(accounts: None) -> None:
    Sky.load().cloud = "gcp"
    Sky.load().max_hourly_cost = 0.5
    _, found = choose_offer(Spec(vcpus=1), Nodes(2))
    assert found.offer.cloud == "gcp"
    with pytest.raises(SkyNoOffer, match="max-hourly-cost"):
        choose_offer(Spec(vcpus=64), Nodes(1))


def test_spot_if_available_asks_on_demand_when_every_spot_place_has_refused(
    aws: tuple[Ec2, Launcher],
) -> None:
    account, _ = aws
    numbers = itertools.count()
    need = Resources.parse(cloud="aws", instance_type="g5.xlarge", region="us-east-1")
    spots = sum(offer.spot for offer in load().filter(need).offers())
    assert spots >= 4
    account.refuse("InsufficientInstanceCapacity", times=spots)

    def launch(offer: Offer) -> Offer:
        order = LaunchRequest(f"t-{next(numbers):08x}", "t", offer, need, 60.0, "me-1", "a.ipynb")
        clouds.get("aws").launch(order)
        return offer

    placed = broker.place(need, launch, quiet, allocation="spot-if-available")
    assert len(placed.attempts) == spots and all(one.offer.spot for one in placed.attempts)
    assert not placed.result.spot and len(account.machines()) == 1
    assert f"it is on demand, {format_rate(placed.result.price)}" in placed.notes[0]


def test_spot_alone_is_never_replaced_by_on_demand(accounts: None) -> None:
    need = Resources.parse(cloud="aws", instance_type="g5.xlarge", region="us-east-1", spot=True)
    with pytest.raises(SkyNoCapacity, match="every place"):
        broker.place(need, refusing("aws"), quiet, allocation="spot")


def test_spot_machines_that_are_lost_at_once_lead_to_on_demand(accounts: None) -> None:
    """Each has cost something: after a few the next market is asked."""
    lost: list[Offer] = []

    def launch(offer: Offer) -> Offer:
        if offer.spot:
            lost.append(offer)
            raise SkyPreempted("taken back while it started")
        return offer

    need = Resources.parse(cloud="aws", cpus="4+")
    placed = broker.place(need, launch, quiet, allocation="spot-if-available")
    assert len(lost) == broker.LOST_STAGE and not placed.result.spot


def test_a_hundred_refusals_are_not_the_end(accounts: None) -> None:
    asked: list[str] = []

    def launch(offer: Offer) -> Offer:
        asked.append(offer.place)
        if len(asked) <= 100:
            raise SkyNoCapacity("none left")
        return offer

    placed = broker.place(Resources.parse(cloud="aws", cpus="64+"), launch, quiet)
    assert len(placed.attempts) == 100 and len(set(asked)) == 101, "no place is asked twice"


# -- until up ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SkyClusterLost, SkyUnreachable])
def test_until_up_does_not_pay_for_attempts_without_end(
    accounts: None, monkeypatch: pytest.MonkeyPatch, error: type[SkyError]
) -> None:
    monkeypatch.setattr(broker, "RETRY_SECONDS", (0.0, 0.0))
    asked: list[Offer] = []

    def launch(offer: Offer) -> Offer:
        asked.append(offer)
        failure = error("the machine came up, and was no use")
        failure.machines_came_up = True
        assert len(asked) < 20, "it goes on and on"
        raise failure

    need = Resources.parse(cloud="aws", instance_type="g5.xlarge", zone="us-east-1a")
    with pytest.raises(error):
        broker.place(need, launch, quiet, until_up=True)
    assert len(asked) == broker.LOST_STAGE


# -- what cannot be launched -------------------------------------------------------------------


@pytest.fixture
def without_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one cloud of the catalog be planned against only."""
    others = tuple(name for name in clouds.provider_names() if name != "hyperstack")
    monkeypatch.setattr(Hyperstack, "launchable", False)
    monkeypatch.setattr(clouds, "provider_names", lambda: others)
    monkeypatch.setattr(launch_support, "provider_names", lambda: others)


UNLAUNCHABLE = {
    "--service dataproc,hdinsight": "dataproc can be planned and priced",
    "--cloud aws --service emr==6.5.0": "its sessions begin with 8.0.0",
    "--cloud hyperstack": "machines of hyperstack cannot be launched from here yet",
}


@pytest.mark.parametrize(("line", "why"), UNLAUNCHABLE.items())
def test_planned_only_cloud_is_never_launched(
    accounts: None, without_driver: None, line: str, why: str
) -> None:
    options = parse_cell_line(line, {})
    with pytest.raises(SkyNoOffer) as refusal:
        broker.place(options.resources, lambda offer: offer, quiet)
    assert why in refusal.value.message and "%sky plan" in (refusal.value.hint or "")
    plan = verbs.call_verb(["plan", *line.split()])
    assert any(why in obstacle for obstacle in plan.obstacles) and plan.tasks[0].offer.price
    assert why in str(dry_run("1", options))


def test_a_graph_is_planned_against_all_and_says_what_cannot_be_launched(accounts: None) -> None:
    task = sky.Task("train").set_resources(service="hdinsight").set_time_estimator("1h")
    with sky.Dag("pipeline") as pipeline:
        pipeline.add(task)
    plan = sky.plan(pipeline)
    assert plan["train"].offer.service == "hdinsight"
    assert any("can be planned and priced" in obstacle for obstacle in plan.obstacles)


def test_the_last_step_before_a_cloud_refuses_what_it_cannot_launch(accounts: None) -> None:
    """Whoever chose the offer: nothing is sent, so nothing costs."""
    offer = Offer("aws", "us-east-1", "m5.xlarge", 4, 16, service="emr", packages=("emr==6.5.0",))
    order = LaunchRequest("t-1", "t", offer, Resources(), 60.0, "me-1", "a.ipynb")
    with pytest.raises(SkyUsageError, match=r"EMR 6\.5\.0 can be planned and priced"):
        provision(order, quiet)


def test_a_managed_service_is_refused_before_a_pool_or_cluster_costs(
    accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("it was launched")

    monkeypatch.setattr(cluster_launch._LaunchAttempt, "run", never)
    sessions.close()
    try:
        with pytest.raises(SkyNoOffer, match="dataproc can be planned and priced"):
            sky.up("spark", service="dataproc", cloud="gcp")
    finally:
        sessions.close()


# -- prices ------------------------------------------------------------------------------------


def test_a_spot_price_that_has_risen_past_the_limit_is_not_chosen(accounts: None) -> None:
    """The tracker has seen a newer price than the catalog's."""
    labels = {"cloud": "aws", "instance_type": "g5.xlarge", "zone": "us-east-1a", "nodes": "2"}
    first = decide_placement(Resources.parse(**labels, spot=True))
    assert first.price is not None
    limit = f"{first.price * 1.01:.6f}"
    limited = Resources.parse(**labels, spot=True, max_hourly_cost=limit)
    assert decide_placement(limited).offer == first.offer
    tracker.observe("price", Place.of(first.offer), usd=(first.offer.price or 0) * 1.5)
    with pytest.raises(SkyNoOffer):
        decide_placement(limited)
    seen = decide_placement(Resources.parse(**labels, spot=True))
    assert seen.price == pytest.approx(first.price * 1.5)


def test_the_dry_run_on_a_cluster_that_is_up_shows_what_all_of_it_costs(accounts: None) -> None:
    sessions.close()
    try:
        session = sessions.current()
        offer = Offer("aws", "us-east-1", "c6g.xlarge", 4, 8, price=0.136)
        row = replace(
            CLUSTER,
            nodes=4,
            price=0.8,  # it was repriced since
            offer=asdict(offer),
            notebook=session.notebook,
            connection={**CLUSTER.connection, "named": False},
        )
        session.store.save_cluster(row)
        shown = dry_run("1", parse_cell_line("--cpus 4 --max-hourly-cost 0.2", {}))
        assert "--nodes" not in shown.sentence, "as it was written"
        assert "on cluster train, which is up" in str(shown) and "at $0.80/h" in shown.sentence
        words = placement_text(
            Fields({"cpus": "4"}), {}, CompletionContext((row,), session.notebook)
        )
        assert "$0.80/h" in words
        session.store.end_cluster(row.id, "down", 2000.0, "it was ended")
    finally:
        sessions.close()


HOSTS = """
[box]
address = "ada@192.0.2.5"
vcpus = 256
memory = 4096
slots = 2
"""


def test_own_machines_with_too_few_slots_are_not_promised(accounts: None, tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(HOSTS)
    assert decide_placement(Resources.parse(cpus="100+", nodes="2")).offer.cloud == "ssh"
    more = decide_placement(Resources.parse(cpus="100+", nodes="3"))
    assert more.offer.cloud in clouds.provider_names() and more.passed == ("own",)
    assert "no machine of your own could take it" in more.notes[0]
    with pytest.raises(SkyNoOffer, match="2 slots") as refusal:
        decide_placement(Resources.parse(cpus="100+", nodes="3", cloud="ssh"))
    assert "--nodes 3" in refusal.value.message


@pytest.mark.parametrize("line", ["--gpus T4", "--gpus T4 --cloud local", "--cpus 2 --region eu"])
def test_the_first_cell_without_an_account_is_told_how_to_get_one(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "usable_providers", lambda need: ())
    need = parse_cell_line(line, {}).resources
    with pytest.raises(SkyNoOffer) as caught:
        decide_placement(need)
    text = str(caught.value)
    assert "cannot run yet" in text and "%sky check" in text
    assert "%sky setup" in text or "--cloud local" in line
    assert "no --gpus" not in text and "nearest" not in text
    assert ("no region of a cloud" in text) is ("--region" in line)


def test_what_is_on_sale_is_named_where_it_could_be_launched_with_an_account(
    monkeypatch: pytest.MonkeyPatch, without_driver: None
) -> None:
    """A cloud without a provider sells the cheapest one."""
    monkeypatch.setattr(placement, "usable_providers", lambda need: ())
    monkeypatch.setattr(preview, "usable_providers", lambda need: ())
    need = Resources.parse(gpus="H100-PCIe")
    assert next(iter(load().filter(need).offers(1))).cloud == "hyperstack"
    with pytest.raises(SkyNoOffer, match=r"the cheapest place on sale: (runpod|lambda) "):
        decide_placement(need)
    plan, _notes = preview.preview_plan(need)
    assert plan.tasks[0].offer.cloud in clouds.provider_names()
    only_there = Resources.parse(gpus="H100-PCIe", cloud="hyperstack")
    plan, notes = preview.preview_plan(only_there)
    assert plan.tasks[0].offer.cloud == "hyperstack" and "cannot be launched" in notes[0]
