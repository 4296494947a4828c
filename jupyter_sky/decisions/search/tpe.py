"""Tree-structured Parzen estimators, by optuna."""

from __future__ import annotations

from typing import Any

import numpy as np

from jupyter_sky.decisions.search.optimizer import Remembering, Seed, Statistic, fill_failures
from jupyter_sky.decisions.search.optional_dependencies import import_optional
from jupyter_sky.decisions.search.space import Space

_TRIES = 20


class TPE(Remembering):
    """optuna's TPE over the points of a finite space.

    Every parameter is a choice among its values; in more than one arm, the arm is chosen first and
    then the arm's own parameters. What optuna suggests and does not exist, or was tried already,
    is told to it as a failure and not measured; after twenty such suggestions a point is drawn.

    Parameters
    ----------
    multivariate : bool
        Whether the parameters are modelled together.

    Examples
    --------
    >>> TPE(space, multivariate=True).ask()  # doctest: +SKIP
    """

    def __init__(
        self,
        space: Space,
        members: Any = None,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        *,
        multivariate: bool = False,
    ) -> None:
        super().__init__(space, members, seed, statistic)
        optuna = import_optional("optuna", "the component 'tpe'")
        import warnings

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of its options are called experimental
            sampler = optuna.samplers.TPESampler(
                seed=int(self.random.integers(2**31)),
                multivariate=multivariate,
                group=multivariate,
            )
        self._optuna, self._study = optuna, optuna.create_study(sampler=sampler)
        self._trials: dict[int, Any] = {}
        points = [space[int(index)] for index in self.members]
        self._index = {
            _key(p.arm, p.values): int(i) for p, i in zip(points, self.members, strict=True)
        }
        self._choices: dict[str, dict[str, list]] = {}
        for point in points:
            of_arm = self._choices.setdefault(point.arm, {})
            for name, value in point.values.items():
                values = of_arm.setdefault(name, [])
                if value not in values:
                    values.append(value)

    def _choose(self, left: np.ndarray) -> int:
        allowed, failed = set(left.tolist()), self._optuna.trial.TrialState.FAIL
        for _ in range(_TRIES):
            trial = self._study.ask()
            index = self._index.get(self._suggested(trial))
            if index is not None and index in allowed:
                self._trials[index] = trial
                return index
            self._study.tell(trial, state=failed)
        return self.random.choice(left)

    def _suggested(self, trial: Any) -> tuple:
        arms = list(self._choices)
        arm = arms[0] if len(arms) == 1 else trial.suggest_categorical("arm", arms)
        values = {
            name: trial.suggest_categorical(f"{arm}/{name}", values)
            for name, values in self._choices[arm].items()
        }
        return _key(arm, values)

    def tell(self, index: int, value: float | None) -> None:
        """Record the value of a point; None when the try failed."""
        super().tell(index, value)
        trial = self._trials.pop(index, None)
        if trial is None:  # drawn without a suggestion: optuna did not ask and is not told
            return
        known = self.value(index)
        if known is None:  # as bad as the worst success, so that it is kept away from
            _, values = self.told
            worst = fill_failures(values)
            self._study.tell(trial, float(worst.max()))
        else:
            self._study.tell(trial, float(np.log(max(known, 1e-12))))


def _key(arm: str, values: Any) -> tuple:
    return (arm, tuple(sorted((name, repr(value)) for name, value in values.items())))
