"""The Kaplan-Meier estimate beside that of SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from jupyter_sky.knowledge.lifetimes.estimation import KaplanMeier
from jupyter_sky.knowledge.lifetimes.lifetimes import Lifetimes


@pytest.mark.filterwarnings("ignore:The confidence interval is undefined")
@pytest.mark.parametrize("seed", range(5))
def test_survival_is_that_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hours = np.round(rng.exponential(5.0, 60), 1) + 0.1  # with ties
    preempted = rng.random(60) < 0.6
    estimate = KaplanMeier.of(Lifetimes.of(hours, preempted, cap=math.inf))
    censored = stats.CensoredData(hours[preempted], right=hours[~preempted])
    expected = stats.ecdf(censored).sf
    ages = np.unique(hours)
    np.testing.assert_allclose(estimate.survival(ages), expected.evaluate(ages), atol=1e-12)
    low = expected.confidence_interval(0.6826894921370859).low.evaluate(ages)
    inside = (low > 0) & (low < 1)
    np.testing.assert_allclose(
        (estimate.survival(ages) - estimate.band(ages))[inside], low[inside], rtol=1e-6
    )
