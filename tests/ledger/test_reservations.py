"""Reservations of the day's budget: what a launch needs at the least, and who gets it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyBudget, SkyStoreError
from jupyter_sky.base.remote import processes
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.knowledge.ledger import budget, reservations
from jupyter_sky.knowledge.ledger.reservations import minimum_billed_seconds, reserve, reserved
from tests.conftest import WAIT
from tests.ledger.test_ledger import put_cluster

HOUR = 3600.0
NOON = datetime(2026, 3, 10, 12).timestamp()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(reservations, "boot_seconds", lambda cloud: 60.0)
    store = Store.open(tmp_path)
    yield store
    store.close()


def launch(name: str, price: float | None, at: float = NOON, cloud: str = "aws") -> ClusterRow:
    """A cluster that this process is about to launch."""
    return ClusterRow(
        name=name,
        state="starting",
        cloud=cloud,
        region="us-east-1",
        instance_type="p5.48xlarge",
        spot=False,
        price=price,
        nodes=8,
        resources="",
        offer={},
        machines=[],
        connection={"token": name, "launcher": processes.identity()},
        notebook=f"{name}.ipynb",
        created=at,
        idle=600.0,
        price_source="aws catalog",
        price_date="2026-03-01",
        renewed=at,
    )


def test_least_time_is_boot_minimum_and_grace() -> None:
    assert minimum_billed_seconds("aws", 60.0) == 60 + 60 + budget.GRACE_SECONDS
    assert minimum_billed_seconds("azure", 60.0) == 60 + budget.GRACE_SECONDS
    assert minimum_billed_seconds("verda", 60.0) == 1200.0, "whole units"
    assert minimum_billed_seconds("ssh") == budget.GRACE_SECONDS


def test_launch_that_the_day_cannot_pay_is_refused(store: Store) -> None:
    put_cluster(store, "train", 2.0)
    budget.write_budget(store, 10.0, "%config")
    least = 786.0 * 150 / HOUR  # $32.75
    with pytest.raises(SkyBudget) as caught:
        reserve(store, launch("big", 786.0, NOON + HOUR), NOON + HOUR)
    assert caught.value.message == (
        "big was not started: to boot, and to end again, it needs $32.75 (2:30 at $786.00/h), and "
        "$8.00 of today's budget of $10.00 is left ($2.00 is spent)"
    )
    assert store.cluster("big") is None, "nothing is noted"
    assert "%config Sky.budget_usd_day = 42" in (caught.value.hint or "")
    budget.write_budget(store, 2.0 + least + 0.01, "%config")
    row = reserve(store, launch("big", 786.0, NOON + HOUR), NOON + HOUR)
    assert store.cluster("big") == row
    assert [one.usd for one in reserved(store, NOON + HOUR)] == [pytest.approx(least)]


def test_launches_under_way_are_counted(store: Store) -> None:
    budget.write_budget(store, 50.0, "%config")
    row = reserve(store, launch("big", 786.0), NOON)
    with pytest.raises(SkyBudget) as caught:
        reserve(store, launch("other", 786.0), NOON + 1)
    assert "reserved by big of big.ipynb ($32.75)" in caught.value.message
    store.record_launch(row, NOON)  # its machines are up: what they are billed is spent, not held
    (left,) = reserved(store, NOON + 100)
    assert left.usd == pytest.approx(786.0 * 50 / HOUR)
    assert budget.assess(store, NOON + 100).spent.usd == pytest.approx(786.0 * 100 / HOUR)
    store.save_cluster(replace(row, state="up"))
    assert reserved(store, NOON + 100) == []


def test_free_or_unpriced_launch_reserves_nothing(store: Store) -> None:
    budget.write_budget(store, 0.0, "%config")
    reserve(store, launch("free", 0.0, cloud="local"), NOON)
    reserve(store, launch("rack", None, cloud="ssh"), NOON)
    assert reserved(store, NOON) == []
    with pytest.raises(SkyBudget, match=r"\$0.00 of today's budget of \$0.00 is spent"):
        reserve(store, launch("cheap", 0.01), NOON)


def test_second_launch_of_a_name_is_refused(store: Store) -> None:
    reserve(store, launch("big", 1.0), NOON)
    with pytest.raises(SkyStoreError, match="a cluster named big is up already"):
        reserve(store, launch("big", 1.0, NOON + 1), NOON + 1)


RACE = """
import sys, time
from pathlib import Path
from jupyter_sky.knowledge.ledger import reservations
from jupyter_sky.base.errors import SkyBudget
from jupyter_sky.base.store.store import Store
from tests.ledger.test_reservations import launch
reservations.boot_seconds = lambda cloud: 60.0
store = Store.open(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
won = 0
for n in range(20):
    try:
        reservations.reserve(store, launch(f"{sys.argv[2]}{n}", 786.0, time.time()))
        won += 1
    except SkyBudget:
        pass
print(won)
"""


def test_two_processes_with_money_for_one(store: Store, tmp_path: Path) -> None:
    budget.write_budget(store, 33.0, "%config")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for name in ("a", "b")
    ]
    for racer in racers:
        assert racer.stdout and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [int(racer.communicate(timeout=WAIT)[0]) for racer in racers]
    assert sum(won) == 1, won
    assert len(store.starting_clusters()) == 1
