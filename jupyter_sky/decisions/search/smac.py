"""SMAC: sequential model-based algorithm configuration, where it is installed."""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
import weakref
from typing import Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.decisions.search.optimizer import Remembering, Seed, Statistic, fill_failures
from jupyter_sky.decisions.search.optional_dependencies import import_optional, small_models
from jupyter_sky.decisions.search.space import Space


class SMAC(Remembering):
    """SMAC3's facade for hyperparameters over a space of arms, each with its own parameters.

    The arm is a choice, and an arm's parameters exist only in it: SMAC knows that hierarchy. What
    it suggests and does not exist, or was tried already, is told as the worst value so far and
    not measured; after many such suggestions a point is drawn. SMAC walks through sets, so the same
    seed gives the same search only where PYTHONHASHSEED is the same as well.

    Parameters
    ----------
    budget : int
        Evaluations in all; SMAC lays out its first design by it.
    facade
        ``hpo``, for hyperparameters, or ``ac``, for the configuration of algorithms.
    challengers : int, optional
        Candidates of each search for the next point; the facade's number unless given.
    random : float, optional
        Share of points that are drawn; the facade's unless given.

    Examples
    --------
    >>> SMAC(space, budget=20).ask()  # doctest: +SKIP
    """

    def __init__(
        self,
        space: Space,
        members: Any = None,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        *,
        budget: int = 50,
        facade: str = "hpo",
        challengers: int | None = None,
        random: float | None = None,
    ) -> None:
        super().__init__(space, members, seed, statistic)
        configspace = import_optional("ConfigSpace", "the method 'smac'")
        smac = import_optional("smac", "the method 'smac'")
        logging.getLogger("smac").setLevel(logging.CRITICAL)  # it warns of what is handled here
        self._runhistory = import_optional("smac.runhistory.dataclasses", "the method 'smac'")
        folder = tempfile.mkdtemp(prefix="sky-smac-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._names: dict[str, tuple[str, list]] = {}
        number = int(self.random.integers(2**31 - 1))
        scenario = smac.Scenario(
            self._design(configspace, number),
            n_trials=10 * budget,  # suggestions, many of which do not exist
            seed=number,
            deterministic=True,
            output_directory=folder,
        )
        facades = {
            "hpo": smac.HyperparameterOptimizationFacade,
            "ac": smac.AlgorithmConfigurationFacade,
        }
        if facade not in facades:
            raise SkyUsageError(f"facade={facade!r}", hint=suggest(facade, facades))
        kind, parts = facades[facade], {}
        if challengers is not None:
            maximizers = import_optional("smac.acquisition.maximizer", "the method 'smac'")
            # made here, as the facade for algorithms takes no number
            parts["acquisition_maximizer"] = maximizers.LocalAndSortedRandomSearch(
                scenario.configspace, challengers=challengers, seed=scenario.seed
            )
        if random is not None:
            parts["random_design"] = kind.get_random_design(scenario, probability=random)
        model = kind.get_model(scenario)
        options = getattr(model, "_rf_opts", {})
        if "max_leaf_nodes" in options:
            # its 2**20 would reserve 150 MB for each tree of some dozen points, which takes longer
            # than all else; as many leaves as points can be change nothing
            options["max_leaf_nodes"] = 10 * budget
        self._smac = kind(
            scenario,
            model=model,
            target_function=lambda config, seed: 0.0,  # it is asked and told instead
            initial_design=self._first_design(smac, scenario, budget),
            **parts,
            overwrite=True,
            logging_level=False,
        )
        self._index = {str(space[int(i)]): int(i) for i in self.members}
        self._infos: dict[int, Any] = {}
        self._exhausted = False

    def _first_design(self, smac: Any, scenario: Any, budget: int) -> Any:
        """Return what is tried before there is a model, of both facades alike."""
        kind = smac.HyperparameterOptimizationFacade
        return kind.get_initial_design(scenario, n_configs=max(1, min(10, budget // 3)))

    def _design(self, configspace: Any, seed: int) -> Any:
        points = [self.space[int(index)] for index in self.members]
        arms = list(dict.fromkeys(point.arm for point in points))
        design = configspace.ConfigurationSpace(seed=seed)
        chosen = configspace.CategoricalHyperparameter("arm", [f"a{n}" for n in range(len(arms))])
        design.add(chosen)
        self._arms = {f"a{number}": arm for number, arm in enumerate(arms)}
        for label, arm in self._arms.items():
            of_arm = [point for point in points if point.arm == arm]
            for name in dict.fromkeys(name for point in of_arm for name in point.values):
                values = list(dict.fromkeys(p.values[name] for p in of_arm if name in p.values))
                key = f"{label}.{name}"
                parameter = configspace.CategoricalHyperparameter(key, list(range(len(values))))
                design.add(parameter)
                if len(arms) > 1:
                    design.add(configspace.EqualsCondition(parameter, chosen, label))
                self._names[key] = (name, values)
        return design

    def _choose(self, left: np.ndarray) -> int:
        allowed = set(left.tolist())
        for _ in range(40):
            info = self._suggested()
            if info is None:
                break
            index = self._index.get(self._text(dict(info.config)))
            if index is not None and index in allowed:
                self._infos[index] = info
                return index
            known = self.value(index) if index in self._told else None
            self._report(info, known)
        return self.random.choice(left)

    def _suggested(self) -> Any:
        """Return SMAC's next point; None once it has found nothing new."""
        if self._exhausted:
            return None
        ended = import_optional("smac.main.exceptions", "the method 'smac'")
        with small_models(), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of averages of times it has not
            try:
                return self._smac.ask()
            except (ended.ConfigurationSpaceExhaustedException, StopIteration):
                self._exhausted = True
                return None

    def _text(self, config: dict[str, Any]) -> str:
        label = str(config.pop("arm"))
        found = {self._names[key][0]: self._names[key][1][int(v)] for key, v in config.items()}
        arm = self._arms[label]
        order = next(p.values for p in self.space.points if p.arm == arm)
        words = [f"{name}={found[name]}" for name in order if name in found]
        return " ".join([arm, *words])

    def tell(self, index: int, value: float | None) -> None:
        """Record the value of a point; None when the try failed."""
        super().tell(index, value)
        if (info := self._infos.pop(index, None)) is not None:
            self._report(info, self.value(index))

    def _report(self, info: Any, value: float | None) -> None:
        worst = float(fill_failures(self.told[1]).max()) if self._told else 0.0
        cost = worst if value is None else float(np.log(max(value, 1e-12)))
        self._smac.tell(info, self._runhistory.TrialValue(cost=cost))
