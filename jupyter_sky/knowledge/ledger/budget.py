"""Budget of a day: its amount, the share that is spent, and the consequences.

One budget for all notebooks of a user: it is kept in the store, where every process reads it. What
was set last by hand counts, from whichever notebook or panel; until then the lowest that any
configuration of a user has said. A project's file can say nothing about it. The day is the local
one, and all that the store has is counted in.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import Any, Literal

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyBudget, SkyUsageError
from jupyter_sky.base.store.store import Store
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger.forecast import local_day, rate, spent_between
from jupyter_sky.knowledge.ledger.ledger import CostSum, format_rate, format_usd
from jupyter_sky.knowledge.ledger.lines import intervals_billed_since

WARN_SHARE = 0.8
"""Share of the budget from which on it is warned."""
GRACE_SECONDS = 30.0
"""Seconds that clusters go on after the budget is passed, for a user who raises it at once."""
MIN_DAY_SECONDS = 23 * 3600.0
"""Seconds of the day on which clocks go forward."""
CONFIGURED_ORIGIN = "configuration"

_BUDGET, _STOP = "budget_usd_day", "budget_stop"

BudgetState = Literal["none", "ok", "warn", "over"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limit of a day's spending.

    Attributes
    ----------
    usd : float or None
        USD a day; None for no limit.
    origin : str
        Origin: ``%config``, ``the Cost panel`` or ``configuration``; empty if unset.
    at : float
        When, unix seconds.
    """

    usd: float | None = None
    origin: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """State of the day against the budget.

    Attributes
    ----------
    budget : Budget
    spent : CostSum
        On the local day so far, all notebooks together.
    rate : CostSum
        What runs now costs by the hour.
    running : tuple of str
        Clusters that cost something by the hour, as ``train ($3.06/h)``.
    day : str
        The local day.
    resets : float
        When the next day begins, unix seconds.
    at : float
        When this was found, unix seconds.
    depleted_at : float or None
        When the clusters that cost something are ended, unless the budget is raised.
    rents : bool
        Whether machines of clouds are billed on that day: they cost more than what is booked.

    Examples
    --------
    >>> spent, rate = CostSum(16.5), CostSum(3.0)
    >>> day = BudgetStatus(Budget(20.0), spent, rate, ("train ($3.00/h)",), "", 0.0, 0.0)
    >>> day.state, day.share, day.seconds_left
    ('warn', 0.825, 4200.0)
    """

    budget: Budget
    spent: CostSum
    rate: CostSum
    running: tuple[str, ...]
    day: str
    resets: float
    at: float
    depleted_at: float | None = None
    rents: bool = False

    @property
    def share(self) -> float | None:
        """Share of the budget that is spent; None without a budget."""
        if self.budget.usd is None:
            return None
        return self.spent.usd / self.budget.usd if self.budget.usd else 1.0

    @property
    def state(self) -> BudgetState:
        """``none`` without a budget, else ``ok``, ``warn`` (from 80 %) or ``over`` (from 100 %)."""
        if self.share is None or self.budget.usd is None:
            return "none"
        if self.spent.usd >= self.budget.usd:
            return "over"
        return "warn" if self.share >= WARN_SHARE else "ok"

    @property
    def seconds_left(self) -> float:
        """Until the budget is spent at the present rate, seconds; infinite where nothing runs."""
        if self.budget.usd is None or not self.rate.usd:
            return math.inf
        return max(0.0, (self.budget.usd - self.spent.usd) / self.rate.usd * 3600)

    @property
    def text(self) -> str:
        """A sentence about the day; empty without a budget."""
        if self.budget.usd is None:
            return ""
        whole = f"${self.budget.usd:,.2f}"
        parts = [
            _("{usd} of today's budget of {whole} is spent").format(
                usd=format_usd(self.spent.usd), whole=whole
            )
        ]
        if self.state in ("ok", "warn") and self.share is not None:
            parts[0] = _("{share} % of today's budget is spent").format(
                share=math.floor(100 * self.share + 1e-6)
            )
            parts[0] += _(": {usd} of {whole}").format(usd=format_usd(self.spent.usd), whole=whole)
        if names := ", ".join(dict.fromkeys(self.spent.unknown + self.rate.unknown)):
            parts.append(_("it cannot see {names}, of unknown price").format(names=names))
        return "; ".join(parts)


def read_budget(store: Store) -> Budget:
    """Return the current budget of this user."""
    text = store.setting(_BUDGET)
    try:
        stored = json.loads(text) if text else {}
        usd = stored.get("usd")
        return Budget(
            None if usd is None else float(usd), stored.get("by", ""), stored.get("at", 0.0)
        )
    except (ValueError, AttributeError, TypeError):  # edited by hand
        return Budget()


def write_budget(store: Store, usd: float | None, origin: str, now: float | None = None) -> Budget:
    """Set the budget for all processes of this user."""
    budget = Budget(usd, origin, time.time() if now is None else now)
    stored = {"usd": usd, "by": budget.origin, "at": budget.at}
    store.set_setting(_BUDGET, json.dumps(stored))
    return budget


def parse_budget(payload: dict[str, Any]) -> float | None:
    """Parse a budget from a front end, ``{"usd": 20}``; None for no limit.

    Raises
    ------
    SkyUsageError
        It is not an amount.
    """
    usd = payload.get("usd", "nothing")
    if usd is None:
        return None
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < 1e9:
        raise SkyUsageError(
            _("a budget of {usd!r} USD a day: not an amount").format(usd=usd),
            hint=_("such as 20, or none for no limit"),
        )
    return float(usd)


def apply_configured(store: Store, usd: float | None) -> str:
    """Let hold what configuration says, unless a lower or a hand-set budget holds.

    Configuration differs between processes, and the budget is one for all of them: the lowest that
    any has said holds until somebody sets it by hand. Only a hand can raise it.

    Returns
    -------
    str
        A sentence for the user whose configuration does not hold; empty where it does.
    """
    current = read_budget(store)
    if usd is None or current.usd == usd:
        return ""
    if not current.origin or (current.origin == CONFIGURED_ORIGIN and current.usd is None):
        write_budget(store, usd, CONFIGURED_ORIGIN)
        return ""
    if current.origin != CONFIGURED_ORIGIN:
        return ""
    assert current.usd is not None
    if usd < current.usd:
        write_budget(store, usd, CONFIGURED_ORIGIN)
        return ""
    return (
        f"The budget of a day stays at ${current.usd:,.2f}, which another process was configured "
        f"with; ${usd:,.2f} is configured here. To raise it: %config Sky.budget_usd_day = {usd:g}"
    )


def assess(store: Store, now: float | None = None) -> BudgetStatus:
    """Compare today's costs in the store with the budget."""
    now = time.time() if now is None else now
    day, first, last = local_day(now)
    intervals = intervals_billed_since(store, first, now)
    live = {row.cluster: row.price for row in intervals if row.ended is None}
    return BudgetStatus(
        read_budget(store),
        spent_between(intervals, store.other_costs(since=first), now, first, last),
        rate(intervals),
        tuple(f"{name} ({format_rate(price)})" for name, price in live.items() if price),
        day,
        last,
        now,
        _ends(store, day),
        any(not find_facts(row.cloud).on_premises for row in intervals),
    )


def budget_error(verdict: BudgetStatus, what: str) -> SkyBudget:
    """Return the error for work that may not start or continue.

    Parameters
    ----------
    what
        Such as ``cell 7 was stopped``.
    """
    usd = verdict.budget.usd or 0.0
    running = ", ".join(verdict.running) or _("nothing that costs")
    return SkyBudget(
        _(
            "{what}: {usd} of today's budget of ${usd2:,.2f} is spent, by all "
            "notebooks; up now: {running}"
        ).format(what=what, usd=format_usd(verdict.spent.usd), usd2=usd, running=running),
        hint=_(
            "raise it: %config Sky.budget_usd_day = {verdict}, or in the Cost tab "
            "of the Sky panel; machines of your own cost nothing: --cloud local; "
            "the next day begins at midnight"
        ).format(verdict=suggest_budget(verdict)),
    )


def suggest_budget(verdict: BudgetStatus) -> str:
    """Suggest a budget with which work continues: 1.5 times the spent amount, rounded up."""
    return round_up(max(verdict.spent.usd, verdict.budget.usd or 0.0) * 1.5)


def round_up(usd: float) -> str:
    """Round an amount of USD up.

    Examples
    --------
    >>> round_up(0.3), round_up(31.2), round_up(1234.0)
    ('1', '32', '1300')
    """
    step = 10.0 ** max(0, math.floor(math.log10(usd)) - 1) if usd >= 1 else 1.0
    return f"{math.ceil(usd / step) * step:g}"


def shutdown_time(store: Store, verdict: BudgetStatus) -> float | None:
    """Return the time at which paid clusters are to end; None while the budget holds.

    The first process that sees the budget passed writes the time down for all, and a budget that
    holds again takes it back.
    """
    if verdict.state != "over":
        if verdict.depleted_at is not None:
            store.set_setting(_STOP, None)
        return None
    if verdict.depleted_at is not None:
        return verdict.depleted_at
    ends = verdict.at + GRACE_SECONDS
    store.set_setting(_STOP, json.dumps({"day": verdict.day, "at": ends}))
    return ends


def depletion_time(verdict: BudgetStatus) -> float | None:
    """Return when running clusters must end to keep the budget; None if they need not.

    The money of a day is shared by all that runs. What is left at midnight is not kept: the next
    day begins with the whole budget. The grace is part of it.

    Examples
    --------
    >>> from dataclasses import replace
    >>> day = BudgetStatus(Budget(20.0), CostSum(16.5), CostSum(3.0), (), "", 7200.0, 0.0)
    >>> depletion_time(day)  # 4200 s, and the grace
    4230.0
    >>> depletion_time(replace(day, resets=600.0))  # the next day pays 20 / 3 h
    24630.0
    >>> depletion_time(replace(day, resets=600.0, rate=CostSum(0.5))) is None
    True
    """
    if verdict.budget.usd is None or not verdict.rate.usd:
        return None
    if verdict.depleted_at is not None and verdict.state == "over":
        return verdict.depleted_at
    ends = verdict.at + verdict.seconds_left
    if ends >= verdict.resets:
        lasts = verdict.budget.usd / verdict.rate.usd * 3600
        if lasts >= MIN_DAY_SECONDS:
            return None
        ends = verdict.resets + lasts
    return ends + GRACE_SECONDS


def _ends(store: Store, day: str) -> float | None:
    try:
        told = json.loads(store.setting(_STOP) or "{}")
        return float(told["at"]) if told.get("day") == day else None
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
