"""CloudBandit: which arm is worth searching is decided while it is searched.

Algorithm 1 of Lazuka, Parnell, Anghel, Pozidis, "Search-based Methods for Multi-Cloud
Configuration" (IEEE CLOUD 2022), with the variants of its appendices B, E and F.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.components import component
from jupyter_sky.decisions.search.optimizer import (
    Remembering,
    Seed,
    Statistic,
    get_statistic,
    valid_value,
)
from jupyter_sky.decisions.search.space import Space

Mode = Literal["continuous", "intermittent"]


def round_arms(arms: int, keep: int = 1, drop: float = 1) -> list[int]:
    """Return the number of active arms by round.

    Parameters
    ----------
    arms
        Number of arms at the beginning.
    keep
        Number of arms that are left.
    drop
        Arms that are eliminated after each round; below 1, their share of the active ones, rounded
        down, but one at least.

    Returns
    -------
    list of int
        From all arms down to those that are kept.

    Examples
    --------
    >>> round_arms(5), round_arms(12, drop=4), round_arms(12, drop=0.5)
    ([5, 4, 3, 2, 1], [12, 8, 4, 1], [12, 6, 3, 2, 1])
    """
    found = [arms]
    while found[-1] > keep:
        out = int(drop) if drop >= 1 else max(1, int(drop * found[-1]))
        found.append(max(keep, found[-1] - out))
    return found


def round_budgets(
    arms: int, b1: int = 1, eta: float = 2, keep: int = 1, drop: float = 1
) -> list[int]:
    """Return the pulls of each active arm by round: b1, b1·eta, b1·eta² ..., rounded down.

    Parameters
    ----------
    arms
        Number of arms at the beginning.
    b1
        Pulls of each arm in the first round.
    eta, keep, drop
        Growth of the budget by round, number of arms that are left, and of those that are
        eliminated after each round, see `round_arms`.

    Returns
    -------
    list of int
        Pulls of each active arm, by round.

    Examples
    --------
    >>> round_budgets(3)
    [1, 2, 4]
    >>> round_budgets(3, eta=4, keep=2)
    [1, 4]
    """
    _check(arms, b1, eta, keep, drop)
    return [int(b1 * eta**k + 1e-9) for k in range(len(round_arms(arms, keep, drop)))]


def total_budget(arms: int, b1: int = 1, eta: float = 2, keep: int = 1, drop: float = 1) -> int:
    """Return all evaluations: the sum over rounds i = 1, 2, ... of (n - i + 1) b1 eta^(i - 1).

    Section 3.1 of the paper for one best arm; with ``keep=2`` the rounds end when two are left
    (appendix E).

    Parameters
    ----------
    arms
        Number of arms at the beginning.
    b1
        Pulls of each arm in the first round.
    eta, keep, drop
        Growth of the budget by round, number of arms that are left, and of those that are
        eliminated after each round, see `round_arms`.

    Returns
    -------
    int
        Evaluations in all.

    Examples
    --------
    >>> total_budget(3), total_budget(3, b1=4), total_budget(3, eta=4, keep=2)
    (11, 44, 11)
    >>> total_budget(12), total_budget(12, drop=4)
    (8178, 52)
    """
    pulls = round_budgets(arms, b1, eta, keep, drop)
    return sum(map(operator.mul, round_arms(arms, keep, drop), pulls))


def first_budget(arms: int, budget: int, eta: float = 2, keep: int = 1, drop: float = 1) -> int:
    """Return the largest b1 whose total is within a budget.

    Parameters
    ----------
    arms
        Number of arms at the beginning.
    budget
        Evaluations in all.
    eta, keep, drop
        Growth of the budget by round, number of arms that are left, and of those that are
        eliminated after each round, see `round_arms`.

    Returns
    -------
    int
        Pulls of each arm in the first round.

    Raises
    ------
    SkyUsageError
        When even b1 = 1 costs more.

    Examples
    --------
    >>> first_budget(3, 44)
    4
    """
    least = total_budget(arms, 1, eta, keep, drop)
    if budget < least:
        raise SkyUsageError(
            _(
                "a budget of {budget} for {arms} arms: CloudBandit with eta={eta:g} needs {least}"
            ).format(budget=budget, arms=arms, eta=eta, least=least),
            hint=_(
                "give {least} or more, or a smaller eta (eta=1 needs {arms}), or "
                "method='gp', which needs no more than one"
            ).format(least=least, arms=total_budget(arms, 1, 1, keep, drop)),
        )
    b1 = 1
    while total_budget(arms, b1 + 1, eta, keep, drop) <= budget:
        b1 += 1
    return b1


def _check(arms: int, b1: int, eta: float, keep: int, drop: float) -> None:
    if b1 < 1 or b1 != int(b1):
        raise SkyUsageError(
            _("b1={b1}: every arm is pulled once at least").format(b1=b1), hint=_("give 1 or more")
        )
    if not 1 <= eta < float("inf"):
        raise SkyUsageError(
            _("eta={eta}: the budget of a round may not shrink").format(eta=eta),
            hint=_("give 1 or more; 2 is usual"),
        )
    if not 1 <= keep <= arms:
        raise SkyUsageError(
            _("keep={keep} of {arms} arms").format(keep=keep, arms=arms),
            hint=_("give a number from 1 to {arms}").format(arms=arms),
        )
    if not 0 < drop < float("inf") or (drop > 1 and drop != int(drop)):
        raise SkyUsageError(
            _("drop={drop}: arms that are eliminated after each round").format(drop=drop),
            hint=_("give a whole number, or a share of the active arms below 1"),
        )


@dataclass
class _Arm:
    """State of an arm."""

    name: str
    members: np.ndarray
    optimizer: Remembering | None = None
    values: dict[int, list[float]] = field(default_factory=dict)
    left: int = 0
    pending: int = 0
    out: int | None = None  # the round after which it was eliminated


class CloudBandit:
    """Best-arm identification with an optimizer in each arm.

    Round k pulls every active arm b1·eta^(k-1) times, then eliminates the arm whose best value so
    far is worst. A pull is one step of the arm's component optimizer. An arm whose points are all
    tried gives the rest of its pulls back: the budget is never exceeded, and may not be used up.

    Parameters
    ----------
    space : Space
        Its arms are the bandit's.
    component : str
        What searches within an arm, see `jupyter_sky.decisions.search.COMPONENTS`.
    b1, eta, keep
        First budget, its growth, and how many arms to keep: 2 gives two candidates that were
        searched equally well (appendix E).
    drop
        Arms eliminated after each round, or their share of the active ones, see `round_arms`: with
        many arms the budget of a single one each round grows out of hand (appendix C).
    mode
        ``continuous``: a component keeps what it learned in earlier rounds; ``intermittent``: it
        starts anew in each round, as in the main part of the paper (appendix B).
    statistic
        What several values of one point amount to (appendix F).
    spare : int
        Pulls that the formula leaves of a larger budget; the last round has them as well.
    rounds : tuple of list of int, optional
        Active arms and pulls of each by round; from the numbers above unless given.
    seed
        Same seed, same trace.
    **options
        For the component.

    Examples
    --------
    >>> space = Space.of({"A": {"nodes": [1, 2, 4]}, "B": {"nodes": [1, 2]}})
    >>> bandit = CloudBandit(space, "random", b1=1)
    >>> while (index := bandit.ask()) is not None:
    ...     bandit.tell(index, 5.0 - index)
    >>> bandit.arm, str(space[bandit.best[0]])
    ('B', 'B nodes=2')
    """

    def __init__(
        self,
        space: Space,
        component: str | type[Remembering] = "rbf",
        *,
        b1: int = 1,
        eta: float = 2,
        keep: int = 1,
        drop: float = 1,
        mode: Mode = "continuous",
        statistic: Statistic = "mean",
        spare: int = 0,
        rounds: tuple[list[int], list[int]] | None = None,
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        if mode not in ("continuous", "intermittent"):
            raise SkyUsageError(f"mode={mode!r}", hint=_("give 'continuous' or 'intermittent'"))
        self.space, self.mode, self.keep = space, mode, keep
        arms = len(space.arms)
        if rounds is None:
            pulls = round_budgets(arms, b1, eta, keep, drop)
            rounds = round_arms(arms, keep, drop), pulls
        self.sizes, self.budgets = rounds
        self.budget = sum(map(operator.mul, self.sizes, self.budgets)) + spare
        self.round, self._spare = -1, spare
        self._component, self._options, self._by = component, options, statistic
        self._amount = get_statistic(statistic)
        self._seed = [seed] if isinstance(seed, int) else list(seed)
        self._random = np.random.default_rng([*self._seed, 0])
        self._arms = [_Arm(name, space.members(name)) for name in space.arms]
        self._excluded: set[int] = set()
        self._advance()

    @classmethod
    def for_budget(
        cls, space: Space, budget: int, component: str | type[Remembering] = "rbf", **options: Any
    ) -> CloudBandit:
        """Return the bandit of the largest b1 in a budget; the last round uses the remainder."""
        shape = (options.get("eta", 2), options.get("keep", 1), options.get("drop", 1))
        b1 = first_budget(len(space.arms), budget, *shape)
        spare = budget - total_budget(len(space.arms), b1, *shape)
        return cls(space, component, b1=b1, spare=spare, **options)

    # -- asking and telling --------------------------------------------------------------------

    def ask(self) -> int | None:
        """Return the next point, of the arm with fewest running tries; None to wait or end."""
        while True:
            ready = [arm for arm in self.active if arm.left]
            if not ready:
                return None
            arm = min(ready, key=lambda one: one.pending)
            assert arm.optimizer is not None
            index = arm.optimizer.ask()
            if index is not None:
                arm.left, arm.pending = arm.left - 1, arm.pending + 1
                return index
            arm.left = 0
            self._advance()

    def tell(self, index: int, value: float | None) -> None:
        """Record the value of a point; None when the try failed."""
        if not 0 <= index < len(self.space):
            raise SkyUsageError(
                _("point {index} of a space of {space_count}").format(
                    index=index, space_count=len(self.space)
                ),
                hint=_("tell what ask gave"),
            )
        arm = self._arms[int(self.space.arm_of[index])]
        assert arm.optimizer is not None
        arm.optimizer.tell(index, value)
        arm.pending = max(0, arm.pending - 1)
        if (good := valid_value(value)) is not None:
            arm.values.setdefault(index, []).append(good)
        self._advance()

    def exclude(self, index: int) -> None:
        """Leave a point out that has no value; the pull of one under way is given back."""
        arm = self._arms[int(self.space.arm_of[index])]
        assert arm.optimizer is not None
        self._excluded.add(index)
        if index in arm.optimizer.pending:
            arm.pending, arm.left = arm.pending - 1, arm.left + 1
        arm.optimizer.exclude(index)
        self._advance()

    def _advance(self) -> None:
        """Begin the next round once all of this one is told, and again if that has no pulls."""
        while not self.finished and not any(arm.left or arm.pending for arm in self.active):
            if self.round >= 0:
                self._eliminate()
            self.round += 1
            if not self.finished:
                self._begin()

    def _eliminate(self) -> None:
        if self.round == len(self.budgets) - 1:
            return
        for _place in range(self.sizes[self.round] - self.sizes[self.round + 1]):
            worst = max(self.reward(arm.name) for arm in self.active)
            equal = [arm for arm in self.active if self.reward(arm.name) == worst]
            equal[int(self._random.integers(len(equal)))].out = self.round

    def _begin(self) -> None:
        pulls = self.budgets[self.round]
        last = self.round == len(self.budgets) - 1
        for place, arm in enumerate(self.active):
            share, more = divmod(self._spare, len(self.active))
            arm.left = pulls + (share + (place < more) if last else 0)
            if arm.optimizer is None or self.mode == "intermittent":
                number = self.space.arms.index(arm.name)
                seed = [*self._seed, number + 1, self.round if self.mode == "intermittent" else 0]
                arm.optimizer = component(
                    self._component, self.space, arm.members, seed, self._by, **self._options
                )
                for index in self._excluded.intersection(arm.members.tolist()):
                    arm.optimizer.exclude(index)

    # -- what is known -------------------------------------------------------------------------

    @property
    def active(self) -> list[_Arm]:
        """Arms that are not eliminated."""
        return [arm for arm in self._arms if arm.out is None]

    @property
    def finished(self) -> bool:
        """Whether all rounds are over."""
        return self.round >= len(self.budgets)

    def _best_in(self, arm: _Arm) -> tuple[int, float] | None:
        known = {index: self._amount(np.array(values)) for index, values in arm.values.items()}
        return min(known.items(), key=lambda item: item[1]) if known else None

    def reward(self, arm: str) -> float:
        """Return the best value of an arm so far; infinite when nothing succeeded there."""
        found = self._best_in(self._arms[self.space.arms.index(arm)])
        return found[1] if found else float("inf")

    @property
    def ranking(self) -> list[tuple[str, int | None, float]]:
        """Arms from the best to the first eliminated, each with its best point and value."""
        rows = []
        for arm in self._arms:
            found = self._best_in(arm)
            index, value = found if found else (None, float("inf"))
            rows.append((arm.out if arm.out is not None else len(self.budgets), value, arm, index))
        rows.sort(key=lambda row: (-row[0], row[1]))
        return [(arm.name, index, value) for __, value, arm, index in rows]

    @property
    def arm(self) -> str:
        """The best arm."""
        return self.ranking[0][0]

    @property
    def best(self) -> tuple[int, float] | None:
        """The best configuration of the best arm, and its value; None when nothing succeeded."""
        __, index, value = self.ranking[0]
        return None if index is None else (index, value)
