"""The hook of placement: how many times over work is paid for, on thousands of offers at once."""

from __future__ import annotations

import math
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jupyter_sky import preemption
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes import (
    Exponential,
    FloorHyperbolic,
    Lives,
    checkpointed,
    evaluate,
    expected_runs,
    fresh_turnaround,
    posterior,
    reference,
    turnaround,
)
from jupyter_sky.knowledge.lifetimes.priors import spot_lifetimes
from jupyter_sky.knowledge.tracker import Place

YOUNG = FloorHyperbolic(0.005, 0.41, 0.3)
HOURS = np.array([0.1, 0.5, 3.0, 12.0, 60.0])


def again(model, hours, nodes: float = 1, restart: float = 0.0, hook=expected_runs):
    work = np.atleast_1d(np.asarray(hours, float))
    return hook(work, Lives.of([model] * len(work), nodes), np.full(len(work), restart))


@pytest.mark.parametrize("restart", [0.0, 0.2])
def test_one_machine_is_exact(restart: float) -> None:
    for model in (YOUNG, Exponential(0.1), YOUNG.times(4.0)):
        wanted = [fresh_turnaround(model, work, restart=restart).hours / work for work in HOURS]
        np.testing.assert_allclose(again(model, HOURS, restart=restart), wanted, rtol=1e-6)


def test_machines_that_do_not_age_are_exact_together() -> None:
    np.testing.assert_allclose(again(Exponential(0.1), HOURS, 3), again(Exponential(0.3), HOURS))
    assert again(Exponential(0.1), 4.0)[0] == pytest.approx(math.expm1(0.4) / 0.4)


@pytest.mark.parametrize("nodes", [2, 4, 16, 32])
def test_clusters_whose_lost_machines_are_replaced(nodes: int) -> None:
    """As `turnaround` has it, which follows every age; all machines new would be far more."""
    work = np.array([0.25, 1.0, 4.0])
    for vcpus in (2, 8, 64):
        base = reference().at(vcpus)
        model = FloorHyperbolic(base.floor, base.early, base.scale)
        exact = np.array([turnaround(model, hours, nodes).hours for hours in work]) / work
        known = exact < 3
        found = again(model, work, nodes)
        np.testing.assert_allclose(found[known], exact[known], rtol=0.07)
        assert (found <= again(model.times(nodes), work) * 1.001).all()


def test_invalid_suggestions_are_not_repeated() -> None:
    assert again(YOUNG, [math.inf, 0.0, math.nan]).tolist() == [1.0, 1.0, 1.0]
    assert again(Exponential(0.0), [5.0])[0] == 1.0
    assert again(Exponential(50.0), [100.0])[0] == math.inf, "it never ends"
    assert expected_runs(np.zeros(0), Lives.of([]), np.zeros(0)).tolist() == []


@settings(max_examples=60)
@given(
    st.floats(0, 0.2),
    st.floats(0, 2),
    st.floats(0.05, 5),
    st.integers(1, 12),
    st.floats(0.05, 30),
)
@example(0.0, 1.0, 0.75, 12, 13.0)  # was a gain of a longer wait
def test_more_work_more_machines_and_higher_hazards_cost_more(
    floor: float, early: float, scale: float, nodes: int, hours: float
) -> None:
    model = FloorHyperbolic(floor, early, scale)
    for hook in (expected_runs, checkpointed(0.5, 0.02)):
        one = again(model, hours, nodes, 0.1, hook)[0]
        assert 1 <= one <= again(model, hours, nodes + 1, 0.1, hook)[0] * (1 + 1e-9)
        assert one <= again(model.times(1.5), hours, nodes, 0.1, hook)[0] * 1.02
        assert one <= again(model, hours, nodes, 0.3, hook)[0] * (1 + 1e-9)


def test_saving_on_one_machine_is_exact() -> None:
    for every, cost in ((0.5, 1 / 60), (1.0, 0.05)):
        for restart in (0.0, 0.1):
            wanted = evaluate(every, YOUNG, 8.0, cost, restart).expected() / 8.0
            found = again(YOUNG, 8.0, restart=restart, hook=checkpointed(every, cost))
            assert found[0] == pytest.approx(wanted, rel=1e-4)
    assert again(YOUNG, 0.4, hook=checkpointed(0.5)) == again(YOUNG, 0.4), "nothing to save"


def test_saves_bound_the_loss() -> None:
    hook = checkpointed(0.5, 1 / 60)
    assert 1 < again(YOUNG, 12.0, hook=hook) < again(YOUNG, 12.0)
    assert again(YOUNG, 12.0, 4, hook=hook) > again(YOUNG, 12.0, hook=hook)
    long, longer = again(YOUNG, [90.0, 900.0], hook=hook)
    assert 1.03 < longer < long < 1.1, "at first machines are young"


@pytest.mark.parametrize("every, cost", [(0.0, 0.0), (math.nan, 0.0), (1.0, -1.0), (1.0, math.inf)])
def test_invalid_checkpoint_intervals_are_refused(every: float, cost: float) -> None:
    with pytest.raises(SkyUsageError, match="checkpointed"):
        checkpointed(every, cost)


def test_lifetimes_of_several_scales_are_no_columns() -> None:
    for models in ([YOUNG, FloorHyperbolic(0.1, 0.1, 2.0)], [Exponential(0.1, 24.0)]):
        with pytest.raises(SkyUsageError, match="turnaround"):
            Lives.of(models)


def test_priors_in_columns_are_those_of_single_places() -> None:
    there = Place("aws", "us-east-1", "us-east-1a", "m5.large", spot=True)
    rate = 1 / spot_lifetimes(np.array([0.075]), np.array([8.0])).floor[0]
    assert rate == pytest.approx(346.65, rel=1e-4), "a band of 5 to 10 %"
    unbanded = spot_lifetimes(np.full(3, np.nan), np.array([np.nan, 32.0, 500.0]))
    assert posterior(there).model == FloorHyperbolic(
        unbanded.floor[0], unbanded.early[0], unbanded.scale
    )
    found = unbanded.hours_per_loss()
    assert found[0] > found[1] > found[2]
    base = reference().at(32)
    lost = 1 - float(base.survival(23.999999))
    assert found[1] == pytest.approx(float(base.integral(24.0)) / lost, rel=1e-4)


def test_placement_loads_no_scipy() -> None:
    code = (
        "import sys, numpy as np\n"
        "from jupyter_sky.knowledge.lifetimes import Beliefs, Lives, expected_runs, posterior\n"
        "from jupyter_sky.knowledge.tracker import Place\n"
        "model = posterior(Place('gcp', 'us-west1', 'b', 'n2-standard-8', spot=True)).model\n"
        "print(expected_runs(np.array([4.0]), Lives.of([model]), np.zeros(1)))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('scipy', 'numba')]\n"
        "assert 'jupyter_sky.knowledge.lifetimes.estimation' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_every_public_name_is_there() -> None:
    for name in preemption.__all__:
        assert not isinstance(getattr(preemption, name), ModuleType), "hidden by a file's name"
    assert sorted(preemption.__all__) == dir(preemption)
    with pytest.raises(AttributeError, match="nothing"):
        getattr(preemption, "nothing")  # noqa: B009
