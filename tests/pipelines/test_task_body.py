"""Graphs to be run, made of a Dag: shared clusters, what is sent with others."""

from __future__ import annotations

from jupyter_sky.base.requests.dag.dag import Dag, Task
from jupyter_sky.workflows.pipelines.model.task_body import make_graph
from jupyter_sky.workflows.pipelines.run.outlook import residual
from jupyter_sky.workflows.pipelines.run.replanning import assign_clusters
from jupyter_sky.workflows.pipelines.run.state import RunState


def test_tasks_of_one_cluster_run_there() -> None:
    with Dag() as dag:
        a, b, c, d, e = (Task(name, run=print) for name in "abcde")
    b >> c
    dag.same_cluster(c, a)
    dag.same_cluster(d, e).same_cluster(e, c)
    graph = make_graph(dag)
    wanted = {name: {"resources": "--cpus 1"} for name in graph.tasks}
    left = residual(RunState.begin(graph), 0.0)
    clusters, offers = assign_clusters(graph, wanted, left)
    assert clusters == {"a": "a", "b": "b", "c": "a", "d": "a", "e": "a"}
    assert set(offers) == {"a", "b"}


def test_only_functions_on_one_machine_without_files_go_together() -> None:
    with Dag() as dag:
        Task("function", run=print)
        Task("wide", run=print, num_nodes=2)
        Task("nodes", run=print).set_resources(nodes=2)
        Task("command", run="ls")
        Task("reads", run=print).set_input("file:./in", size=1)
        Task("writes", run=print).set_output("file:./out", size=1)
    together = {name for name, task in make_graph(dag).tasks.items() if task.is_batched}
    assert together == {"function"}
    assert not any(task.is_batched for task in make_graph(dag, is_batched=False).tasks.values())
