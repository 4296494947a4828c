"""Ends of machines of an emulated cloud by the budget monitor when the day's budget is passed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyBudget, SkyClusterLost
from jupyter_sky.base.remote import processes
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.execution.clusters import cluster_launch
from jupyter_sky.execution.clusters.budget_monitor import LEAD_SECONDS
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.ledger import Ledger
from jupyter_sky.machines.provisioner import Report
from tests.clouds.gcp_requests import order
from tests.emulators.gce import Compute

pytest_plugins = ["tests.clouds.gcp_fixtures"]


@pytest.fixture
def known(
    compute: Compute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterRegistry]:
    monkeypatch.setattr(Sky.load(), "data_dir", str(tmp_path))
    store = Store.open(tmp_path)
    budget.write_budget(store, 1.0, "%config")
    clusters = ClusterRegistry(store, "a.ipynb", "session")
    yield clusters
    clusters.budget_monitor.close()
    store.close()


def _order(name: str, **offer: Any) -> Any:
    from jupyter_sky.clouds.launches.launch_records import installation_id

    owner = installation_id(Path(Sky.load().data_dir))
    return order(f"{name}-00000001", price=3600.0, owner=owner, **offer)


def put(known: ClusterRegistry, name: str, state: str = "up", launcher: Any = None) -> ClusterRow:
    """A dear cluster that has run for a minute, with a machine in the cloud."""
    asked = _order(name)
    row = cluster_launch._new_row(asked, named=True)
    row = replace(row, created=time.time() - 60, renewed=time.time())
    launcher = launcher or processes.identity()
    row = replace(row, connection=row.connection | {"launcher": launcher})
    known.store.save_cluster(row)
    machines = clouds.get("gcp").launch(asked)
    row = replace(row, machines=[asdict(machine) for machine in machines])
    known.store.record_launch(row, row.created)
    if state == "up":
        row = replace(row, state="up")
        known.store.save_cluster(row)
    return row


def passed(known: ClusterRegistry, ago: float = 1.0) -> budget.BudgetStatus:
    """The day, whose grace has been over for some seconds."""
    verdict = budget.assess(known.store)
    assert verdict.state == "over"
    return replace(verdict, depleted_at=time.time() - ago)


def dead() -> dict[str, Any]:
    """Identity of a process that has ended."""
    command = (
        "import json, sys; from jupyter_sky.base.remote import processes;"
        "json.dump(processes.identity(), sys.stdout)"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    return json.loads(done.stdout)


def test_starting_cluster_of_a_killed_process_is_ended(
    known: ClusterRegistry, compute: Compute
) -> None:
    row = put(known, "big", "starting", dead())
    assert known.budget_monitor.end_all(passed(known)) == ["big"]
    assert compute.machines() == []
    found = known.store.find_cluster(row.id)
    assert found and found.state == "down" and "today's budget" in found.note
    assert all(interval.ended for interval in known.store.intervals())


def test_launch_by_a_living_process_gives_back_itself_first(
    known: ClusterRegistry, compute: Compute
) -> None:
    put(known, "big", "starting")
    assert known.budget_monitor.end_all(passed(known)) == [], "its own process does"
    assert len(compute.machines()) == 1
    late = known.budget_monitor.end_all(passed(known, ago=10_000.0))
    assert late == ["big"] and compute.machines() == []


def test_stopped_cluster_keeps_its_files(known: ClusterRegistry, compute: Compute) -> None:
    row = put(known, "big")
    known.store.save_cluster(replace(row, state="stopped"))
    assert known.budget_monitor.end_all(passed(known)) == []
    assert len(compute.machines()) == 1
    known.store.save_cluster(row)
    assert known.budget_monitor.end_all(passed(known)) == ["big"]


def test_launch_that_is_not_noted_yet_is_ended_by_its_token(
    known: ClusterRegistry, compute: Compute
) -> None:
    """Its process was killed between the cloud's answer and the note of the machines."""
    asked = _order("big")
    row = cluster_launch._new_row(asked, named=True)
    row = replace(row, connection=row.connection | {"launcher": dead()})
    known.store.save_cluster(row)
    clouds.get("gcp").launch(asked)
    time.sleep(0.05)
    cluster_launch.cancel_launch(known.records, row, "ended by your budget: over")
    assert compute.machines() == []
    (interval,) = known.store.intervals()
    assert interval.bounded and interval.ended and interval.ended > interval.started
    assert not known.store.record_launch(row, time.time()), "its process can note nothing more"


def test_one_cluster_that_cannot_be_ended_saves_no_other(
    known: ClusterRegistry, compute: Compute
) -> None:
    broken = replace(put(known, "aaa"), machines=[{"name": "no id"}])
    known.store.save_cluster(broken)
    put(known, "bbb")
    put(known, "ccc")
    assert sorted(known.budget_monitor.end_all(passed(known))) == ["bbb", "ccc"]
    assert [row.name for row in known.store.clusters()] == ["aaa"]
    known.store.save_cluster(replace(broken, machines=[]))
    assert known.budget_monitor.end_all(passed(known)) == ["aaa"], "it is tried again"


def test_clusters_have_ended_when_the_grace_is_over(
    known: ClusterRegistry, compute: Compute
) -> None:
    put(known, "big")
    assert known.budget_monitor.enforce() > 0 and len(compute.machines()) == 1, (
        "the grace has begun"
    )
    day, ends = budget.assess(known.store).day, time.time() + LEAD_SECONDS - 1
    known.store.set_setting("budget_stop", json.dumps({"day": day, "at": ends}))
    known.budget_monitor.enforce()
    assert compute.machines() == [] and time.time() < ends


def test_clusters_end_side_by_side(known: ClusterRegistry, compute: Compute) -> None:
    for name in ("aaa", "bbb", "ccc"):
        put(known, name)
    compute.slow("remove", 1.0, times=3)
    begun = time.monotonic()
    assert len(known.budget_monitor.end_all(passed(known))) == 3
    assert time.monotonic() - begun < 3.0, "one after the other takes three seconds and more"


def _attempt(known: ClusterRegistry, report: Report) -> cluster_launch._LaunchAttempt:
    """Return a launch that has not begun."""
    callbacks = cluster_launch.LaunchCallbacks(
        report, known.budget_monitor.check_start, known.connect
    )
    return cluster_launch._LaunchAttempt(known.records, _order("big"), True, callbacks)


def test_budget_that_is_passed_ends_a_launch(
    known: ClusterRegistry, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine boots and boots; the day's money is spent meanwhile."""
    budget.write_budget(known.store, 10_000.0, "%config")
    reports: list[str] = []

    def report(stage: str, detail: str) -> None:
        reports.append(stage)
        if known.store.live_clusters()[0].machines:
            known.budget_monitor.set_budget(0.5)

    with pytest.raises(SkyBudget, match="big was given back as it started"):
        _attempt(known, report).run()
    assert reports and compute.machines() == []
    assert known.store.live_clusters() == []
    assert all(interval.ended for interval in known.store.intervals())


def test_launch_that_was_ended_by_another_process_gives_back(
    known: ClusterRegistry, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_launch, "RENEW_SECONDS", 0.0)
    budget.write_budget(known.store, 10_000.0, "%config")

    def report(stage: str, detail: str) -> None:
        if (rows := known.store.live_clusters()) and rows[0].machines:
            known.store.end_cluster(rows[0].id, "down", time.time(), "it was ended")

    with pytest.raises(SkyClusterLost, match="was ended by another process"):
        _attempt(known, report).run()
    assert compute.machines() == []
    intervals = known.store.intervals()
    (bill,) = compute.bills()
    lasted = sum((one.ended or 0.0) - one.started for one in intervals)
    assert lasted >= bill["seconds"] - 0.2, "what ran on is billed too"


def test_reservation_is_part_of_a_launch(known: ClusterRegistry, compute: Compute) -> None:
    with pytest.raises(SkyBudget, match="to boot, and to end again, it needs"):
        _attempt(known, lambda stage, detail: None).run()
    assert compute.calls == [] and known.store.live_clusters() == []
    assert Ledger(known.store).summary("cluster") == []


def test_a_request_is_refused_before_it_is_placed(known: ClusterRegistry) -> None:
    """As a cell has it: the broker asks no other place for the same money."""
    asked: list[str] = []
    need = Resources(clouds=("gcp",), cpus=None, instance_type="n2-standard-2")
    known.budget_monitor.set_budget(0.0)
    with pytest.raises(SkyBudget):
        known.launch(ClusterRequest(need), lambda stage, detail: asked.append(detail))
