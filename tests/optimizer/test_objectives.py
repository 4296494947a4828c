"""Objectives of a request, and those of its plan."""

from __future__ import annotations

import inspect

from jupyter_sky.decisions.optimizer.objectives import SETTINGS
from jupyter_sky.decisions.optimizer.planning import plan


def test_every_setting_of_a_plan_is_known() -> None:
    assert set(inspect.signature(plan).parameters) - {"what", "labels"} == SETTINGS
