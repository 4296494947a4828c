"""Begin of a run: it is stored with its plan, then carried out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun
from jupyter_sky.workflows.pipelines.run.run_storage import open_journal
from jupyter_sky.workflows.pipelines.run.state import Kind

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan
    from jupyter_sky.workflows.pipelines.run.graph_parts import GraphPart
    from jupyter_sky.workflows.pipelines.run.replanning import RunProblem


def start_run(
    session: Session,
    graph: RunGraph,
    name: str,
    plan: Plan,
    problem: RunProblem,
    detach: bool = False,
    *,
    fail_fast: bool = False,
    part: GraphPart | None = None,
    **settings: Any,
) -> PipelineRun:
    """Store a graph as a run, and carry it out.

    Parameters
    ----------
    plan, problem
        Plan with which it begins, and what later ones are made from.
    detach
        In a process of its own, which outlives this one.
    fail_fast
        Cancel all when a task has failed.
    part
        Of which `graph` is, with the kept results that it takes; None for a whole graph.
    **settings
        ``origin`` names the notebook or graph, whose kept results are compared with; ``fresh=True``
        runs every task. For the graph of a notebook ``source`` is the notebook, ``cells`` the
        number of the cell of each task, ``sweeps`` the tasks of each cell that ``--map`` makes
        several of.

    Raises
    ------
    SkyUsageError
        There is a run of that name.
    """
    journal = open_journal(Path(session.config.data_dir))
    try:
        plans = {"plan": plan.to_json(), "problem": problem.to_text()}
        taken = {task: result.to_json() for task, result in part.taken.items()} if part else {}
        own = {"taken": taken, "notebook": session.notebook, "folder": str(Path.cwd())}
        settings = {**own, **plans, **settings}
        journal.add(name, graph, settings, time.time())
        if fail_fast:
            journal.wish(name, Kind.FAIL_FAST, time.time())
    finally:
        journal.close()
    run = PipelineRun(session, name)
    return run.start_detached() if detach else run.start()
