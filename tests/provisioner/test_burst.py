"""Own machines first, then rented ones: the policy, the decision, and a pool that is taken."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky import tracker
from jupyter_sky.base.errors import SkyCancelled, SkyUsageError
from jupyter_sky.base.requests.cell_options.burst import BurstPolicy, parse_burst
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import RunRow, Store
from jupyter_sky.clouds import LaunchRequest, get
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.execution.cells.request import with_settings
from jupyter_sky.execution.cells.run_record import digest_code
from jupyter_sky.machines.provisioner import broker, own_queue
from jupyter_sky.machines.provisioner.own_queue import (
    OwnQueue,
    SlotHolder,
    decide_burst,
    find_holders,
    past_durations,
    read_queue,
    remaining_seconds,
)
from jupyter_sky.machines.provisioner.placement import decide_placement
from jupyter_sky.machines.provisioner.preview import preview_plan
from tests.emulators.ec2 import Ec2
from tests.emulators.hosts import USABLE, SshHost
from tests.store.rows import CLUSTER, RUN

_numbers = itertools.count(1)
POLICY = parse_burst("spot<=2/h after 10m", is_of_cell=True)
UNKNOWN = OwnQueue(slots=4, free=0)


# -- the policy --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "market", "usd", "after"),
    [
        ("spot<=2/h after 10m", "spot", 2.0, 600.0),
        ("spot up to $2/h after 10 min", "spot", 2.0, 600.0),
        ("Spot <= 2.50 USD/h", "spot", 2.5, 0.0),
        ("on-demand after 1h", "on-demand", None, 3600.0),
        ("<=5", "any", 5.0, 0.0),
        ("after 90s", "any", None, 90.0),
        ("<=1234567.5/h after 14d", "any", 1234567.5, 1209600.0),
    ],
)
def test_policies(text: str, market: str, usd: float | None, after: float) -> None:
    found = parse_burst(text)
    assert (found.market, found.max_usd_h, found.after) == (market, usd, after)
    written = parse_cell_line(found.option()).burst
    assert written == replace(found, is_of_cell=True), "an option says the same"


@pytest.mark.parametrize("text", ["cheap", "spot<=x", "after", "after soon", "spot<=-2", "  "])
def test_invalid_policies(text: str) -> None:
    with pytest.raises(SkyUsageError, match="--burst"):
        parse_burst(text)


def test_policy_of_the_settings_holds_where_a_cell_has_none(own_data: None) -> None:
    Sky.load().burst = "on-demand after 1h"
    (of_settings, of_cell) = (
        with_settings(parse_cell_line(line), Sky.load()).burst
        for line in ("--cpus 4", '--cpus 4 --burst "spot after 5m"')
    )
    assert of_settings == BurstPolicy("on-demand", None, 3600.0)
    assert of_cell == BurstPolicy("spot", None, 300.0, is_of_cell=True)
    with pytest.raises(Exception, match="not understood"):
        Sky.load().burst = "sometimes"


# -- the decision ------------------------------------------------------------------------------


def test_free_slots_are_taken() -> None:
    assert decide_burst(POLICY, OwnQueue(4, 2), 2).action == "own"
    assert decide_burst(POLICY, OwnQueue(4, 2), 3).action != "own"


@pytest.mark.parametrize(
    ("left", "waited", "action"),
    [(300.0, 0.0, "wait"), (601.0, 0.0, "rent"), (300.0, 301.0, "rent"), (600.0, 0.0, "wait")],
)
def test_expected_wait_is_compared_with_the_limit(left: float, waited: float, action: str) -> None:
    holder = SlotHolder(4, elapsed=None, idle=left)
    found = decide_burst(POLICY, OwnQueue(4, 0, (holder,)), 1, waited)
    assert found.action == action
    assert "4 of 4 slots are taken" in found.text and "10:00" in found.text
    assert ("spot machines up to $2/h" in found.text) is (action == "rent")


def test_whole_time_is_waited_where_nothing_is_known_of_the_queue() -> None:
    assert decide_burst(POLICY, UNKNOWN, 1, 599.0).action == "wait"
    assert decide_burst(POLICY, UNKNOWN, 1, 600.0).action == "rent"
    at_once = replace(POLICY, after=0.0)
    assert decide_burst(at_once, UNKNOWN, 1).action == "rent"


def test_slots_come_free_one_cluster_after_the_other() -> None:
    holders = (
        SlotHolder(1, elapsed=None, idle=300.0),
        SlotHolder(2, elapsed=10.0, idle=0.0, durations=(70.0,)),
        SlotHolder(1, elapsed=10.0, idle=0.0),
    )
    queue = OwnQueue(4, 0, holders)
    assert [queue.wait_seconds(n) for n in (1, 2, 3, 4)] == [60.0, 60.0, 300.0, None]
    assert replace(queue, free=1).wait_seconds(3) == 60.0


def test_rest_of_a_run_by_those_that_took_longer() -> None:
    assert remaining_seconds(50.0, [10.0, 60.0, 80.0, 100.0]) == 30.0
    assert remaining_seconds(500.0, [10.0, 60.0]) == 500.0
    assert remaining_seconds(5.0, []) is None


def test_holders_are_read_from_the_run_history(own_data: None, tmp_path: Path) -> None:
    store, now = Store.open(tmp_path), time.time()
    offer = Offer("ssh", "pool", "box", 4, 8, price=0.0)
    row = replace(
        CLUSTER, name="mine", cloud="ssh", instance_type="box", nodes=1, idle=120.0, created=now
    )
    store.save_cluster(row)
    code, begun = "train()", now - 5000
    for number, seconds in enumerate((100.0, 200.0, 300.0)):
        like = replace(RUN, run_id=f"r{number}", cluster="mine", code=code, started=begun)
        store.insert_ended_run(replace(like, ended=begun + seconds, status="ok"))
    (idle,) = find_holders(store, offer, now)
    assert idle == SlotHolder(1, None, 120.0)
    running = replace(RUN, run_id="now", cluster="mine", code=code, started=now - 150)
    store.begin_run(running)
    (busy,) = find_holders(store, offer, now)
    assert busy.elapsed == pytest.approx(150.0) and sorted(busy.durations) == [100.0, 200.0, 300.0]
    assert find_holders(store, replace(offer, instance_type="other"), now) == ()
    other = replace(running, code="else()")
    assert len(past_durations(other, store.runs())) == 3, "of its notebook, as there are no like it"


def test_runs_of_the_same_code_are_told_by_its_digest() -> None:
    """The kept code is cut: two long cells may begin alike, and clusters and notebooks differ."""
    begin = "x = 1\n" * 100

    def ended(seconds: float, code: str, **changes: str) -> RunRow:
        row = replace(RUN, code=begin, code_digest=digest_code(begin + code), status="ok")
        return replace(row, started=0.0, ended=seconds, **changes)

    running = replace(RUN, code=begin, code_digest=digest_code(f"{begin}train()"))
    history = [
        ended(100.0, "train()", cluster="elsewhere"),
        ended(200.0, "train()", notebook="other.ipynb"),
        ended(5.0, "show()"),
    ]
    assert sorted(past_durations(running, history)) == [100.0, 200.0]
    assert past_durations(running, history[2:]) == (5.0,), "of its notebook"
    old = [replace(history[0], code_digest=""), replace(history[2], code="show()")]
    assert past_durations(replace(running, code_digest=""), old) == (100.0,)


# -- a real pool, and an emulated account ------------------------------------------------------

needs_ssh = pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
NEED = Resources.parse(cloud="ssh", cpus="2", memory="4")


@pytest.fixture
def pool(aws: tuple[Ec2, Launcher], tmp_path: Path) -> Iterator[SshHost]:
    """A machine of one's own with one slot, and an account of AWS."""
    host = SshHost(57)
    (tmp_path / "hosts.toml").write_text(host.toml("box"))
    yield host
    for path in tmp_path.glob("ssh/*/machines.json"):
        get("ssh").terminate([f"{path.parent.name}/0"])
    host.close()


def take_slot() -> str:
    """Let another cluster have the slot; return its machine."""
    cloud = get("ssh")
    offer = cloud.offers(NEED)[0]  # type: ignore[attr-defined]
    order = LaunchRequest(
        f"other-{next(_numbers):08x}", "other", offer, NEED, 60.0, "me", "b.ipynb"
    )
    (machine,) = cloud.launch(order)
    return machine.id


@pytest.mark.parametrize(
    ("policy", "asked", "market"),
    [
        (parse_burst("<=5", is_of_cell=True), {"on_demand": True}, False),
        (parse_burst("<=5", is_of_cell=True), {"spot": True}, True),
        (parse_burst("<=5", is_of_cell=True), {}, None),
        (parse_burst("spot<=5"), {"on_demand": True}, False),
        (parse_burst("spot<=5"), {}, True),
    ],
)
def test_market_that_a_cell_asks_for_is_kept(
    aws: tuple[Ec2, Launcher],
    policy: BurstPolicy,
    asked: dict[str, bool],
    market: bool | None,
) -> None:
    need = Resources.parse(cloud="aws", cpus="2", memory="4", **asked)
    decision = decide_placement(need, burst=policy)
    assert decision.stage.need.spot is market
    assert market is None or decision.offer.spot is market


@pytest.mark.slow
@needs_ssh
def test_free_slots_are_counted_without_taking_any(pool: SshHost) -> None:
    (offer,) = get("ssh").offers(NEED)  # type: ignore[attr-defined]
    assert read_queue(NEED, offer) == OwnQueue(1, 1)
    assert pool.taken() == []
    id = take_slot()
    assert read_queue(NEED, offer) == OwnQueue(1, 0)
    get("ssh").terminate([id])
    assert read_queue(NEED, offer).free == 1  # type: ignore[union-attr]


@pytest.mark.slow
@needs_ssh
def test_a_busy_pool_bursts_within_the_limits_of_the_policy(pool: SshHost) -> None:
    said: list[str] = []
    free = broker.place(NEED, lambda offer: offer, lambda *_: None, burst=POLICY)
    assert free.result.cloud == "ssh" and free.notes == []
    take_slot()
    at_once = replace(POLICY, after=0.0)
    placed = broker.place(NEED, lambda offer: offer, lambda *args: said.append(str(args)),
                          burst=at_once)  # fmt: skip
    assert placed.result.cloud == "aws" and placed.result.spot
    assert placed.result.price is not None and placed.result.price <= 2.0
    (note,) = placed.notes
    assert note.startswith("own machines: the only slot is taken") and "up to $2/h" in note
    of_settings = replace(at_once, is_of_cell=False)
    stages = decide_placement(NEED, burst=of_settings)
    assert stages.later == (), "a setting does not go beyond --cloud ssh"


@pytest.mark.slow
@needs_ssh
def test_a_refusal_of_before_does_not_count_where_a_slot_is_free(pool: SshHost) -> None:
    (offer,) = get("ssh").offers(NEED)  # type: ignore[attr-defined]
    tracker.observe("refused", offer, cause="capacity", why="its slot is taken")
    assert tracker.block(offer) is not None
    placed = broker.place(NEED, lambda offer: offer, lambda *_: None, burst=POLICY)
    assert placed.result.cloud == "ssh" and tracker.block(offer) is None


@pytest.mark.slow
@needs_ssh
def test_a_cell_waits_for_its_turn_and_says_so(
    pool: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_queue, "ASK_SECONDS", 0.2)
    id, said = take_slot(), list[str]()

    def report(stage: str, detail: str) -> None:
        if detail and detail not in said:
            said.append(detail)
            if "waiting" in detail:
                get("ssh").terminate([id])

    placed = broker.place(NEED, lambda offer: offer, report, burst=POLICY)
    assert placed.result.cloud == "ssh"
    assert "for how long is not known; waiting 10:00 at most" in said[0]

    def cancel(stage: str, detail: str) -> None:
        if "waiting" in detail:
            raise SkyCancelled("no longer wanted")

    take_slot()
    with pytest.raises(SkyCancelled):
        broker.place(NEED, lambda offer: offer, cancel, burst=POLICY)


@pytest.mark.slow
@needs_ssh
def test_plan_tells_the_policy_and_what_it_comes_to(pool: SshHost) -> None:
    plan, notes = preview_plan(NEED, POLICY)
    assert plan.tasks[0].offer.cloud == "ssh"
    assert notes == (f"burst: {POLICY.describe()}",)
    take_slot()
    plan, notes = preview_plan(NEED, POLICY)
    assert plan.tasks[0].offer.cloud == "ssh" and "waiting 10:00 at most" in notes[1]
    plan, notes = preview_plan(NEED, replace(POLICY, after=0.0))
    assert plan.tasks[0].offer.spot and "up to $2/h" in notes[0]
