"""The day's budget over a real cluster that has a price: cells stop, the cluster ends, all know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.store.store import Store
from jupyter_sky.execution.clusters import budget_monitor
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.ledger import Ledger
from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE, SshHost

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]

DEAR = 3600  # USD/h: a dollar a second
LOOP = "%%sky --cloud ssh\nimport time\nprint('begun', flush=True)\nfor _ in range(600):\n"
LOOP += "    time.sleep(0.1)"


@pytest.fixture(scope="module")
def host() -> Iterator[SshHost]:
    made = SshHost(63)
    yield made
    made.close()


@pytest.fixture
def start(fresh: Any, host: SshHost) -> Callable[..., Notebook]:
    def make(name: str = "analysis.ipynb", price: float | None = DEAR) -> Notebook:
        fresh.data.mkdir(exist_ok=True)
        (fresh.data / "hosts.toml").write_text(host.toml("box", price=price))
        return fresh(name)

    make.data = fresh.data  # type: ignore[attr-defined]
    return make


def spent_today(data: Path) -> float:
    store = Store.open(data)
    try:
        return budget.assess(store).spent.usd
    finally:
        store.close()


def test_a_budget_that_is_passed_stops_what_costs(start: Any, host: SshHost) -> None:
    book = start()
    assert (
        book.run("import jupyter_sky.knowledge.ledger.budget as _b; _b.GRACE_SECONDS = 8").status
        == "ok"
    )
    assert book.run("%%sky --cloud ssh\nkept = 41").status == "ok"
    most = spent_today(start.data) + 12  # the last fifth, of which is warned, takes seconds
    assert book.run(f"%config Sky.budget_usd_day = {most}").status == "ok"
    ran = book.run(LOOP)
    assert ran.ename == "SkyBudget", ran
    assert "was stopped" in ran.evalue and f"today's budget of ${most:,.2f}" in ran.evalue
    assert "%config Sky.budget_usd_day" in ran.evalue and "3,600.00/h" in ran.evalue
    assert "% of today's budget is spent" in ran.status_line, "it was warned before"
    assert 3 < ran.seconds < 40
    refused = book.run("%%sky --cloud ssh\nkept")
    assert refused.ename == "SkyBudget" and "was not started" in refused.evalue
    free = book.run("%%sky --cloud local -c free\n6 * 7")
    assert free.result == "42", "what costs nothing goes on"
    wait_until(lambda: not host.held(), "the cluster goes on")
    store = Store.open(start.data)
    (dear,) = [row for row in store.clusters(live_only=False) if row.price]
    wait_until(lambda: store.cluster(dear.name).state == "down", "its account goes on")
    assert [row.name for row in store.clusters()] == ["free"]
    bill = Ledger(store).cluster_usd(dear.name)
    assert bill is not None and bill < most + 8 + 12, "little more than the grace"
    assert book.run("%%sky -c free\n1 + 1").result == "2"
    new = book.run("%%sky --cloud ssh\nkept")
    assert new.ename == "SkyBudget" and "was not started on" in new.evalue, "no new cluster"
    assert book.run(f"%config Sky.budget_usd_day = {most + 1000}").status == "ok"
    assert book.run("%%sky --cloud ssh\n'again'").result == "'again'"
    assert book.run("%sky down all").status == "ok"
    store.close()


def test_it_holds_when_the_notebook_is_gone(
    start: Any, host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the Jupyter server: another process sees the budget passed and ends the cluster."""
    book = start()
    sent = book.send(LOOP)
    book.wait_output("begun")
    book.kill()
    del sent
    assert host.held(), "the cluster outlives the kernel"
    from jupyter_sky.base.settings.settings import Sky

    monkeypatch.setattr(budget, "GRACE_SECONDS", 1.0)
    monkeypatch.setenv("SKY_DATA_DIR", str(start.data))
    before = Sky._instance
    Sky.clear_instance()
    try:
        watching = Session({}, "server", is_persistent=True, everywhere=True)
        budget.write_budget(watching.store, 1.0, "the Cost panel")
        wait_until(lambda: not host.held(), "the cluster goes on")
        wait_until(lambda: not watching.store.clusters())
        watching.close()
    finally:
        Sky.clear_instance()
        Sky._instance = before


def test_it_holds_when_no_process_of_ours_lives(start: Any, host: SshHost) -> None:
    """The controller itself ends the cluster, and its running cell, at the deadline it was told."""
    book = start()
    assert (
        book.run("import jupyter_sky.knowledge.ledger.budget as _b; _b.GRACE_SECONDS = 1").status
        == "ok"
    )
    assert book.run("%%sky --cloud ssh --idle 1h\nkept = 41").status == "ok"
    most = spent_today(start.data) + 12
    assert book.run(f"%config Sky.budget_usd_day = {most}").status == "ok"
    book.send(LOOP)
    book.wait_output("begun")
    time.sleep(2.5)  # a heartbeat
    book.kill()
    begun = time.monotonic()
    wait_until(lambda: not host.held(), "the cluster goes on")
    assert time.monotonic() - begun > 2
    again = start("again.ipynb")
    assert again.run("%sky status").status == "ok"
    store = Store.open(start.data)
    (row,) = store.clusters(live_only=False)
    assert (row.state, row.note) == ("down", "the day's budget is spent")
    bill = Ledger(store).cluster_usd(row.name)
    assert bill is not None and bill < most + 1 + 15, "little more than the grace"
    store.close()


def test_raising_the_budget_elsewhere_moves_the_deadline(
    start: Any, host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is dead, a server lives: what runs goes on once there is more money."""
    book = start()
    assert (
        book.run("import jupyter_sky.knowledge.ledger.budget as _b; _b.GRACE_SECONDS = 1").status
        == "ok"
    )
    assert book.run("%%sky --cloud ssh --idle 1h\nkept = 41").status == "ok"
    most = spent_today(start.data) + 18
    assert book.run(f"%config Sky.budget_usd_day = {most}").status == "ok"
    book.send(LOOP)
    book.wait_output("begun")
    time.sleep(2.5)
    book.kill()
    from jupyter_sky.base.settings.settings import Sky

    monkeypatch.setattr(budget, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(budget_monitor, "UNHEARD_SECONDS", 3.0)
    monkeypatch.setenv("SKY_DATA_DIR", str(start.data))
    before = Sky._instance
    Sky.clear_instance()
    try:
        watching = Session({}, "server", is_persistent=True, everywhere=True)
        budget.write_budget(watching.store, most + 12, "the Cost panel")
        time.sleep(most - spent_today(start.data) + 4)
        assert host.held(), "the old deadline has ended it"
        wait_until(lambda: not host.held(), "the new deadline does not hold")
        watching.close()
    finally:
        Sky.clear_instance()
        Sky._instance = before


def test_daily_budget_of_configuration_and_panel(start: Any, fresh: Any) -> None:
    fresh.data.mkdir(exist_ok=True)
    book = fresh("one.ipynb", SKY_BUDGET_USD_DAY="20")
    assert book.run("%config Sky.budget_usd_day").result == "20.0"
    assert book.run("import jupyter_sky as sky; sky.config('budget_usd_day')").result == "20.0"
    assert book.run("%sky status").status == "ok"  # opens the session
    store = Store.open(fresh.data)
    assert budget.read_budget(store).usd == 20.0
    budget.write_budget(store, 50.0, "the Cost panel")
    shown = "%config Sky.budget_usd_day"
    wait_until(lambda: book.run(shown).result == "50.0", "it is one for all")
    assert book.run("%config Sky.budget_usd_day = 20").status == "ok"
    assert budget.read_budget(store).usd == 20.0 and budget.read_budget(store).origin == "%config"
    assert book.run("%sky config budget_usd_day=None").status == "ok"
    assert budget.read_budget(store).usd is None
    bad = book.run("%sky config budget_usd_day=much")
    assert bad.ename == "SkyUsageError"
    store.close()
