"""Methods that CloudBandit is measured against."""

from __future__ import annotations

import math
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.bandit import CloudBandit
from jupyter_sky.decisions.search.components import component
from jupyter_sky.decisions.search.optimizer import Remembering, Seed, Statistic
from jupyter_sky.decisions.search.space import Space


class _PerArmOptimizer:
    """An optimizer of its own in each arm, pulled in an order that subclasses decide."""

    def __init__(
        self, space: Space, name: str | type[Remembering], seed: Seed, by: Statistic, options: Any
    ) -> None:
        self.space = space
        seeds = [seed] if isinstance(seed, int) else list(seed)
        self._optimizers = {
            arm: component(name, space, space.members(arm), [*seeds, number], by, **options)
            for number, arm in enumerate(space.arms)
        }
        self._asked = dict.fromkeys(space.arms, 0)

    @property
    def _exhausted(self) -> set[str]:
        """Arms that have nothing left to try."""
        return {arm for arm, one in self._optimizers.items() if not len(one.left)}

    def _pull(self, arm: str) -> int | None:
        index = self._optimizers[arm].ask()
        self._asked[arm] += index is not None
        return index

    def tell(self, index: int, value: float | None) -> None:
        """Record the value of a point; None when the try failed."""
        self._optimizers[self.space[index].arm].tell(index, value)

    def exclude(self, index: int) -> None:
        """Leave a point out that has no value; the pull of one under way is given back."""
        arm = self.space[index].arm
        self._asked[arm] -= index in self._optimizers[arm].pending
        self._optimizers[arm].exclude(index)

    @property
    def best(self) -> tuple[int, float] | None:
        """The best point of all arms and its value."""
        found = [one.best for one in self._optimizers.values()]
        return min((best for best in found if best), key=lambda best: best[1], default=None)


class Independent(_PerArmOptimizer):
    """Each provider searched for itself with an equal share of the budget; the best is taken.

    The search of Ramamurthy, Saurabh, Gharote, Lodha, "Selection of Cloud Service Providers for
    Hosting Web Applications in a Multi-cloud Environment" (2020), called RM by the paper.

    Parameters
    ----------
    budget : int
        Evaluations in all.
    component, seed, statistic, **options
        As of `CloudBandit`.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> Independent(space, budget=4, component="random").ask() in range(4)
    True
    """

    def __init__(
        self,
        space: Space,
        budget: int,
        component: str | type[Remembering] = "rbf",
        *,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        **options: Any,
    ) -> None:
        super().__init__(space, component, seed, statistic, options)
        if budget < len(space.arms):
            raise SkyUsageError(
                _("a budget of {budget} for {arms_count} arms: each needs one evaluation").format(
                    budget=budget, arms_count=len(space.arms)
                ),
                hint=_("give {arms_count} or more, or method='gp', which needs one").format(
                    arms_count=len(space.arms)
                ),
            )
        share, more = divmod(budget, len(space.arms))
        self._shares = {arm: share + (n < more) for n, arm in enumerate(space.arms)}

    def ask(self) -> int | None:
        """Return the next point; None when all is tried or results must come first."""
        for arm, share in self._shares.items():
            if self._asked[arm] < share:
                index = self._pull(arm)
                if index is not None:
                    return index
                self._shares[arm] = self._asked[arm]
        return None

    @property
    def finished(self) -> bool:
        """Whether no further point will be returned."""
        done = self._exhausted
        return all(self._asked[a] >= n or a in done for a, n in self._shares.items())


class SuccessiveHalving(CloudBandit):
    """A constant share of the arms is eliminated after each round; rounds cost the same.

    Karnin, Koren, Somekh, "Almost optimal exploration in multi-armed bandits" (2013), without the
    assumption of random rewards as in Jamieson and Talwalkar (2016): of the active arms the best
    1/eta, rounded up, go on, until one is left. With few arms the rounds are what rounding makes of
    them, which is the paper's reason (section 3.2) to eliminate one arm each time instead.

    Parameters
    ----------
    budget : int
        Evaluations in all, shared equally by the rounds.
    component, seed, statistic, **options
        As of `CloudBandit`.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({arm: {"nodes": [1, 2, 3, 4]} for arm in "ABCD"})
    >>> halving = SuccessiveHalving(space, budget=12, component="random")
    >>> halving.sizes, halving.budgets, halving.budget
    ([4, 2], [1, 3], 12)
    """

    def __init__(
        self,
        space: Space,
        budget: int,
        component: str | type[Remembering] = "rbf",
        *,
        eta: float = 2,
        **options: Any,
    ) -> None:
        arms = len(space.arms)
        if not 1 < eta < float("inf"):
            raise SkyUsageError(
                _("eta={eta}: 1/eta of the arms go on").format(eta=eta),
                hint=_("give a number above 1; 2 is usual"),
            )
        sizes = _halves(arms, eta)
        share = budget // len(sizes)
        if share < arms:
            raise SkyUsageError(
                _("a budget of {budget} for {arms} arms in {rounds} rounds").format(
                    budget=budget, arms=arms, rounds=len(sizes)
                ),
                hint=_("give {least} or more, or method='gp', which needs one").format(
                    least=arms * len(sizes)
                ),
            )
        rounds = (sizes, [share // size for size in sizes])
        spare = budget - sum(size * pulls for size, pulls in zip(*rounds, strict=True))
        super().__init__(space, component, rounds=rounds, spare=spare, **options)

    @classmethod
    def for_budget(
        cls, space: Space, budget: int, component: str | type[Remembering] = "rbf", **options: Any
    ) -> SuccessiveHalving:
        """Return the optimizer: it plans with its budget anyway."""
        return cls(space, budget, component, **options)


def _halves(arms: int, eta: float) -> list[int]:
    """Return the active arms by round; the last round's best is the answer."""
    sizes = [arms]
    while sizes[-1] > eta:
        sizes.append(min(sizes[-1] - 1, math.ceil(sizes[-1] / eta)))
    return sizes


class RisingBandits(_PerArmOptimizer):
    """Arms are pulled in turn until their rewards cannot catch up with another's.

    Li, Jiang, Gao, Shao, Zhang, Cui, "Efficient Automatic CASH via Rising Bandits" (AAAI 2020). A
    reward, here the best value with its sign turned, is taken to rise ever more slowly. So an arm
    can gain no more than its present slope times the pulls that remain; when even then it stays
    below what another arm has already, it is eliminated.

    Parameters
    ----------
    budget : int
        Evaluations in all: the horizon up to which slopes are drawn on.
    window : int
        Pulls over which a slope is measured.
    component, seed, statistic, **options
        As of `CloudBandit`; the paper has Bayesian optimization.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> RisingBandits(space, budget=4, component="random").ask() in range(4)
    True
    """

    def __init__(
        self,
        space: Space,
        budget: int,
        component: str | type[Remembering] = "bo-rf",
        *,
        window: int = 5,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        **options: Any,
    ) -> None:
        super().__init__(space, component, seed, statistic, options)
        if budget < len(space.arms) or window < 1:
            raise SkyUsageError(
                _("a budget of {budget} for {arms_count} arms, a window of {window}").format(
                    budget=budget, arms_count=len(space.arms), window=window
                ),
                hint=_("give a budget of {arms_count} or more, and a window of 1 or more").format(
                    arms_count=len(space.arms)
                ),
            )
        self._budget, self._window = budget, window
        self._curves: dict[str, list[float]] = {arm: [] for arm in space.arms}
        self.active = list(space.arms)

    def ask(self) -> int | None:
        """Return the next point; None when all is tried or results must come first."""
        if sum(self._asked.values()) >= self._budget:
            return None
        done = self._exhausted
        ready = [arm for arm in self.active if arm not in done]
        if not ready:
            return None
        return self._pull(min(ready, key=lambda arm: self._asked[arm]))

    def tell(self, index: int, value: float | None) -> None:
        """Record the value of a point; None when the try failed."""
        super().tell(index, value)
        arm = self.space[index].arm
        best = self._optimizers[arm].best
        self._curves[arm].append(best[1] if best else float("inf"))
        if len({len(self._curves[arm]) for arm in self.active}) == 1:
            self._eliminate()

    def _eliminate(self) -> None:
        pulls = len(self._curves[self.active[0]])
        if pulls <= self._window:
            return
        ahead = (self._budget - sum(map(len, self._curves.values()))) / len(self.active)
        present = {arm: self._curves[arm][-1] for arm in self.active}
        reach = {}
        for arm in self.active:
            before = self._curves[arm][-1 - self._window]
            fell = before - present[arm]
            slope = fell / self._window if fell == fell else 0.0  # nothing has succeeded yet
            reach[arm] = present[arm] - slope * ahead
        leader = min(present, key=lambda arm: present[arm])
        self.active = [a for a in self.active if a == leader or reach[a] < present[leader]]

    @property
    def finished(self) -> bool:
        """Whether no further point will be returned."""
        done = self._exhausted
        return sum(self._asked.values()) >= self._budget or all(a in done for a in self.active)
