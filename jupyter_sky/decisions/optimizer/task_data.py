"""Data of a request that a plan is made for, and sentences on the data of a plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from jupyter_sky.base.requests.dag.graph import Data, Graph
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.decisions.optimizer.plan_values import PlannedTransfer


def with_inputs(graph: Graph, inputs: Sequence[Data]) -> Graph:
    """Return the graph of one task that reads data as well."""
    if not inputs:
        return graph
    (task,) = graph.tasks
    return replace(graph, tasks=(replace(task, inputs=(*task.inputs, *inputs)),))


def describe_data(moves: Sequence[PlannedTransfer]) -> list[str]:
    """Return sentences on sizes and rates that were measured, in place of those assumed."""
    notes = []
    for move in moves:
        store = move.target if move.kind == "output" else move.source
        if move.measured:
            ago = format_duration(max(1.0, time.time() - move.measured))
            notes.append(
                f"measured: {move.gb:.3g} GB in {move.objects:,} objects of {store}, {ago} ago"
            )
        if move.rate_basis == "observed":
            notes.append(f"observed: {_rate(move):.2g} Gbit/s from {move.source} to {move.target}")
    return notes


def _rate(move: PlannedTransfer) -> float:
    return move.gb * 8 / (move.hours * 3600) if move.hours else 0.0
