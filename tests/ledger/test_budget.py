"""The budget of a day, over a real store: what is seen, what follows, who decides."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from jupyter_sky.base.store.store import Store
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.budget import GRACE_SECONDS, Budget
from tests.ledger.test_ledger import put_cluster

HOUR = 3600.0
NOON = datetime(2026, 3, 10, 12).timestamp()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path)
    yield store
    store.close()


def test_last_manual_budget_applies_to_all_notebooks(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path)
    assert budget.read_budget(other) == Budget()
    budget.apply_configured(store, 20.0)
    assert (budget.read_budget(other).usd, budget.read_budget(other).origin) == (
        20.0,
        "configuration",
    )
    budget.apply_configured(store, None)
    assert budget.read_budget(other).usd == 20.0, "a notebook without one does not take it away"
    budget.apply_configured(store, 5.0)
    assert budget.read_budget(other).usd == 5.0
    assert "stays at $5.00" in budget.apply_configured(other, 1000.0), (
        "the lowest that is configured"
    )
    assert budget.read_budget(store) == Budget(5.0, "configuration", budget.read_budget(store).at)
    budget.write_budget(other, 50.0, "the Cost panel", NOON)
    budget.apply_configured(store, 5.0)
    assert budget.read_budget(store) == Budget(50.0, "the Cost panel", NOON)
    budget.write_budget(store, None, "%config")
    budget.apply_configured(store, 5.0)
    assert budget.read_budget(other).usd is None, "no limit, by hand"
    store.set_setting("budget_usd_day", "a word")
    assert budget.read_budget(other) == Budget()
    other.close()


@pytest.mark.parametrize(
    ("usd", "state"), [(None, "none"), (10.0, "ok"), (3.75, "warn"), (3.0, "over"), (0.0, "over")]
)
def test_the_state_of_a_day(store: Store, usd: float | None, state: str) -> None:
    put_cluster(store, "train", 1.0)
    put_cluster(store, "free", 0.0, cloud="local")
    budget.write_budget(store, usd, "%config")
    verdict = budget.assess(store, NOON + 3 * HOUR)
    assert (verdict.state, verdict.spent.usd) == (state, pytest.approx(3.0))
    assert verdict.running == ("train ($1.00/h)",)
    assert verdict.rate.usd == 1.0
    if usd == 10.0:
        assert verdict.seconds_left == pytest.approx(7 * HOUR)
    assert bool(verdict.text) == (usd is not None)


def test_every_day_begins_anew(store: Store) -> None:
    put_cluster(store, "train", 1.0)
    budget.write_budget(store, 12.5, "%config")
    late = budget.assess(store, NOON + 13 * HOUR)  # one in the morning
    assert late.spent.usd == pytest.approx(1.0) and late.state == "ok"
    assert late.resets == NOON + 36 * HOUR
    store.add_other_cost(store.cluster("train").id, "egress", 11.5, NOON + 13 * HOUR - 60)
    assert budget.assess(store, NOON + 13 * HOUR).state == "over"
    assert budget.assess(store, NOON + 36.5 * HOUR).state == "ok"


def test_unknown_prices_are_not_seen_and_that_is_said(store: Store) -> None:
    put_cluster(store, "rack", None)
    budget.write_budget(store, 1.0, "%config")
    verdict = budget.assess(store, NOON + HOUR)
    assert verdict.state == "ok" and verdict.running == ()
    assert "cannot see rack, of unknown price" in verdict.text


def test_refusal_says_what_was_spent_what_runs_and_how_to_go_on(store: Store) -> None:
    put_cluster(store, "train", 8.0)
    budget.write_budget(store, 20.0, "%config")
    verdict = budget.assess(store, NOON + 3 * HOUR)
    error = budget.budget_error(verdict, "cell 7 was not started")
    assert error.message == (
        "cell 7 was not started: $24.00 of today's budget of $20.00 is spent, by all notebooks; "
        "up now: train ($8.00/h)"
    )
    assert "%config Sky.budget_usd_day = 36" in (error.hint or "")
    assert "--cloud local" in (error.hint or "")


@pytest.mark.parametrize("usd", [0.0, 0.3, 1.0, 19.0, 20.0, 99.0, 1234.0])
def test_suggested_budget_is_sufficient(store: Store, usd: float) -> None:
    put_cluster(store, "train", 10.0)
    budget.write_budget(store, usd, "%config")
    verdict = budget.assess(store, NOON + 2 * HOUR)
    assert float(budget.suggest_budget(verdict)) > max(verdict.spent.usd, usd)


def test_one_grace_for_all_that_ends_with_the_day_or_a_higher_budget(
    store: Store, tmp_path: Path
) -> None:
    other = Store.open(tmp_path)
    put_cluster(store, "train", 1.0)
    budget.write_budget(store, 1.0, "%config")
    at = NOON + 2 * HOUR
    ends = budget.shutdown_time(store, budget.assess(store, at))
    assert ends == at + GRACE_SECONDS
    assert budget.shutdown_time(other, budget.assess(other, at + 20)) == ends
    assert budget.assess(other, at + 20).depleted_at == ends
    budget.write_budget(other, 5.0, "the Cost panel")
    assert budget.shutdown_time(store, budget.assess(store, at + 25)) is None
    budget.write_budget(other, 1.0, "the Cost panel")
    assert budget.shutdown_time(store, budget.assess(store, at + 60)) == at + 60 + GRACE_SECONDS
    tomorrow = at + 24 * HOUR
    assert budget.assess(store, tomorrow).depleted_at is None, "yesterday's end is not today's"
    other.close()
