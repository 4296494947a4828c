"""Identities of the tasks of a sweep, and of those that read its list."""

from __future__ import annotations

from typing import Any

from jupyter_sky.workflows.pipelines.notebook.cell_body import make_notebook_graph
from jupyter_sky.workflows.pipelines.notebook.cells import read_cells
from jupyter_sky.workflows.pipelines.notebook.links import link_cells

NOTEBOOK = (
    "%%sky --task note -o noted\nnoted = 1",
    "%%sky --task fit --map \"lr=[1,'1']\" --after note -o score\nscore = lr",
    "%%sky --task best -i score -o top\ntop = max(score)",
)


def _identities(**parameters: Any) -> dict[str, dict[str, Any]]:
    cells = [{"cell_type": "code", "source": source} for source in NOTEBOOK]
    graph = make_notebook_graph(link_cells(read_cells({"cells": cells})), parameters)
    return {name: task.body["identity"] for name, task in graph.tasks.items()}


def test_the_values_of_a_sweep_are_parameters() -> None:
    found = _identities()
    assert found["fit[lr=1]"]["parameters"] == {"lr": "1"}
    assert found["fit[lr=#2]"]["parameters"] == {"lr": "'1'"}


def test_a_list_has_the_identities_of_its_values_in_their_order() -> None:
    values = _identities()["best"]["values"]
    assert {name: tuple(source) for name, source in values.items()} == {
        "score[0]": ("fit[lr=1]", "score"),
        "score[1]": ("fit[lr=#2]", "score"),
    }
    one = _identities(lr=[1])["best"]["values"]
    assert [*one] == ["score[0]"], "a list of one value is not the value"


def test_order_alone_is_no_part_of_an_identity() -> None:
    assert _identities()["fit[lr=1]"]["tasks"] == {}
