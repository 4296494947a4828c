"""Ranges of parameters as options of cells and verbs write them."""

from __future__ import annotations

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.ranges import read_ranges
from jupyter_sky.workflows.pipelines.notebook.cells import read_cells
from jupyter_sky.workflows.pipelines.notebook.links import link_cells


@pytest.mark.parametrize(
    ("text", "seed", "ranges"),
    [
        ("lr=0.1,0.01", None, {"lr": [0.1, 0.01]}),
        (
            "lr=0.1,0.01,kind=adam,sgd",
            "0:2",
            {"lr": [0.1, 0.01], "kind": ["adam", "sgd"], "seed": [0, 1]},
        ),
        ("n=0:10:5", None, {"n": [0, 5]}),
        ("salt=-0.5..1e3", None, {"salt": (-0.5, 1000.0)}),
        ("layers=[1,2],[3]", None, {"layers": [[1, 2], [3]]}),
        (None, "7", {"seed": [7]}),
    ],
)
def test_ranges_are_read(text: str | None, seed: str | None, ranges: dict) -> None:
    assert read_ranges(text, seed) == ranges


@pytest.mark.parametrize(
    ("text", "seed", "message"),
    [
        ("0.1,0.2", None, "--sweep 0.1,0.2: not a name with values"),
        ("lr=", None, "--sweep lr=: not understood"),
        ("lr=f(1)", None, "not understood"),
        ("lr=1,lr=2", None, "lr is given twice"),
        ("seed=1", "0:3", "seed is given twice"),
        ("class=1", None, "class"),
    ],
)
def test_invalid_ranges(text: str, seed: str | None, message: str) -> None:
    with pytest.raises(SkyUsageError, match=message):
        read_ranges(text, seed)


def test_bag_in_a_pipeline_is_refused() -> None:
    cell = {"cell_type": "code", "source": "%%sky --sweep n=0:3 --task fit\nn", "metadata": {}}
    (finding,) = link_cells(read_cells({"cells": [cell]})).findings
    assert finding.is_error
    assert "cell fit with --sweep is a bag of jobs" in finding.text


@pytest.mark.parametrize(
    ("options", "more", "other"),
    [("--nodes 2", {}, "--nodes"), ("--cpus 2", {"explore": True}, "explore=True")],
)
def test_burst_policy_of_which_nothing_would_be_done(
    own_data: None, options: str, more: dict[str, bool], other: str
) -> None:
    with pytest.raises(SkyUsageError, match=f"a bag with --burst and {other}"):
        sky.bag("true", [1], resources=f"{options} --burst spot<=2/h", **more)
