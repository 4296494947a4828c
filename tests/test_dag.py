"""Graphs: Listing 1, sizes, edges, and invalid graphs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

import jupyter_sky as sky
from jupyter_sky import GB, Dag, Task
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.dag.dag import Data, parse_size
from jupyter_sky.base.requests.resources import Resources


def train_time(resource: sky.Offer) -> float:
    return 5.0 if resource.accelerator == "nvidia-v100" else 4.5


def infer_time(resource: sky.Offer) -> float:
    return 14.8 if resource.accelerator == "nvidia-t4" else 8.2


def listing_1() -> sky.Dag:
    """Return the graph of Listing 1 of the SkyPilot paper, as it is printed."""
    with Dag() as dag:
        train = (
            Task("train", run="train.py", arg="--data=$INPUT[0] --model=$OUTPUT[0]")
            .set_input("s3://my-data", size=150 * GB)
            .set_output("?:/my-model", size=0.1 * GB)
            .set_resources(
                {
                    Resources(accelerator="nvidia-v100"),
                    Resources(accelerator="google-tpu-v3-8", cpu=4),
                }
            )
            .set_time_estimator(train_time)
        )
        infer = (
            Task("infer", run="infer.py", arg="--model=$INPUT[0]")
            .set_input(train.output(0))
            .set_resources(
                {
                    Resources(accelerator="nvidia-t4"),
                    Resources(accelerator="aws-inferentia", ram=16 * GB),
                }
            )
            .set_time_estimator(infer_time)
        )
    train >> infer
    return dag


def test_listing_1() -> None:
    graph = listing_1().freeze()
    train, infer = graph.tasks
    assert {need.gpu for need in train.needs} == {"V100", "tpu-v3-8"}
    assert {need.command_line() for need in infer.needs} == {
        "--gpus T4:1",
        "--memory 16 --gpus Inferentia:1",
    }
    assert train.inputs == (Data("s3://my-data", 150.0, "aws", ""),)
    assert train.outputs[0].is_anywhere and infer.inputs == ()
    (edge,) = graph.edges
    assert (edge.src, edge.dst) == (0, 1) and edge.gb == pytest.approx(0.1)


@pytest.mark.parametrize("kept", ["V100", "tpu-v3-8"])
def test_each_alternative_of_listing_1_can_be_planned(kept: str) -> None:
    dag = listing_1()
    (need,) = (need for need in dag["train"].needs if need.gpu == kept)
    plan = sky.plan(dag["train"].set_resources(need).dag)
    offers = {placed.task: placed.offer for placed in plan.tasks}
    assert offers["train"].gpu == kept
    assert offers["infer"].accelerator in ("nvidia-t4", "aws-inferentia")


def test_labels_of_the_paper_are_those_of_cells() -> None:
    need = Resources(cpu=16, ram=64 * GB, num_nodes=3)
    assert need == Resources.parse(cpus="16", memory="64", nodes=3)
    assert replace(need, nodes=2).labels() == {"cpus": "16", "memory": "64", "nodes": "2"}
    with pytest.raises(SkyUsageError, match="not a known accelerator"):
        Resources(accelerator="nvidia-v1000")


def test_input_implies_its_edge() -> None:
    with sky.Dag() as dag:
        first = sky.Task("first").set_output("?:/a", size=2).set_output("?:/b", size=3)
        sky.Task("second").set_input(first.output(1))
    assert [edge.gb for edge in dag.freeze().edges] == [3.0]


def test_edge_without_data_moves_every_output() -> None:
    with sky.Dag() as dag:
        a = sky.Task("a").set_output("?:/x", size=2).set_output("s3://kept", size=5, region="r")
        b, c, d = (sky.Task(name) for name in "bcd")
        a >> [b, c] >> d
    graph = dag.freeze()
    assert {(e.src, e.dst, e.gb) for e in graph.edges} == {
        *((0, 1, 2.0), (0, 2, 2.0), (1, 3, 0.0), (2, 3, 0.0))
    }
    # what is stored is read from the store, once the task that wrote it has ended
    assert graph.tasks[1].stored == (Data("s3://kept", 5.0, "aws", "r"),)


def test_tasks_are_put_in_an_order_that_the_edges_allow() -> None:
    with sky.Dag() as dag:
        last, first = sky.Task("last"), sky.Task("first")
        last << first
    graph = dag.freeze()
    assert [task.name for task in graph.tasks] == ["first", "last"]
    assert [(edge.src, edge.dst) for edge in graph.edges] == [(0, 1)]


def test_an_explicit_size_wins() -> None:
    with sky.Dag() as dag:
        a, b = sky.Task("a").set_output("?:/x", size=2), sky.Task("b")
        dag.add_edge(a, b, size="1TB", residency="eu")
    (edge,) = dag.freeze().edges
    assert (edge.gb, edge.residency) == (1024.0, ("EU",))


def test_alternatives_in_a_set_do_not_depend_on_its_order() -> None:
    needs = {Resources.parse(gpus=name) for name in ("T4", "V100", "L4", "A100")}
    orders = {sky.Task("x").set_resources(needs).needs for _ in range(3)}
    orders |= {sky.Task("x").set_resources(frozenset(sorted(needs, key=str))).needs}
    assert len(orders) == 1


def test_nodes_of_a_request_win_over_those_of_the_task() -> None:
    with sky.Dag() as dag:
        sky.Task("x", num_nodes=3).set_resources({"cpus": "4"}, {"cpus": "8", "nodes": "2"})
    assert [need.nodes for need in dag.freeze().tasks[0].needs] == [3, 2]


@pytest.mark.parametrize(
    ("size", "gb"), [("150GB", 150.0), ("0.5 TB", 512.0), ("512 mib", 0.5), (0, 0.0), ("0GB", 0.0)]
)
def test_sizes(size: str | float, gb: float) -> None:
    assert parse_size(size) == gb


@pytest.mark.parametrize("size", [-1, "-1GB", "much", float("nan"), float("inf"), True, "5 XB", ""])
def test_invalid_size(size: object) -> None:
    with pytest.raises(SkyUsageError, match="is not a size"):
        sky.Task("x").set_input("s3://data", size=size)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["set_input", "set_output"])
def test_a_missing_size_is_named(kind: str) -> None:
    with sky.Dag() as dag:
        getattr(sky.Task("train"), kind)("s3://data")
    with pytest.raises(SkyUsageError, match="task train: the size of s3://data is missing"):
        dag.freeze()


def test_a_cycle_is_named() -> None:
    with sky.Dag() as dag:
        a, b, c, d = (sky.Task(name) for name in "abcd")
        a >> b >> c >> d >> b
    with pytest.raises(SkyUsageError) as caught:
        dag.freeze()
    path = caught.value.message.partition(": ")[2].split(" >> ")
    assert path[0] == path[-1] and set(path) == {"b", "c", "d"}
    assert {(u, v) for u, v in pairwise(path)} == {*(("b", "c"), ("c", "d"), ("d", "b"))}


def test_self_dependency_is_refused() -> None:
    with sky.Dag() as dag:
        a = sky.Task("a")
        a >> a
    with pytest.raises(SkyUsageError, match="a >> a"):
        dag.freeze()


def test_two_tasks_without_a_name_and_two_of_one_name() -> None:
    with sky.Dag(), pytest.raises(SkyUsageError, match="two tasks have no name"):
        sky.Task()
        sky.Task()
    with sky.Dag(), pytest.raises(SkyUsageError, match="two tasks are called 'x'"):
        sky.Task("x")
        sky.Task("x")


def test_tasks_of_two_graphs_cannot_be_joined() -> None:
    with sky.Dag():
        a = sky.Task("a")
    with sky.Dag():
        b = sky.Task("b")
    with pytest.raises(SkyUsageError, match="not in one Dag"):
        a >> b
    with pytest.raises(SkyUsageError, match="cannot follow >>"):
        a >> "b"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sky.Task("x").set_input("bucket"), "'bucket' is not a place for data"),
        (lambda: sky.Task("x").set_input("?:/data", size=1), "does not say where"),
        (lambda: sky.Task("x").set_input(sky.Task("y").output(), size=1), "belongs to the output"),
        (lambda: sky.Task("x").set_resources(), "no request is given"),
        (lambda: sky.Task("x").set_resources("V100"), "'V100' is not a request"),
        (lambda: sky.Task("x").set_resources(gpu="V100"), "'gpu' is not a label"),
        (lambda: sky.Task("x").set_time_estimator("soon"), "not a duration"),
        (lambda: sky.Task("x").set_time_estimator(-1), "-1 is not a time"),
        (lambda: sky.Task("x").set_time_estimator(float("nan")), "nan is not a time"),
        (lambda: sky.Task("x").set_residency("narnia"), "neither a country nor a jurisdiction"),
        (lambda: sky.Task("x").set_spin_up(-1), "spin_up=-1"),
        (lambda: sky.Dag().freeze(), "the Dag has no task"),
        (lambda: sky.Dag()["x"], "there is no task 'x'"),
    ],
)
def test_mistakes(make: object, said: str) -> None:
    with pytest.raises(SkyUsageError) as caught:
        make()  # type: ignore[operator]
    assert said in caught.value.message


@pytest.mark.parametrize("nodes", [0, -1, 1.5, True])
def test_numbers_of_nodes(nodes: object) -> None:
    with sky.Dag() as dag:
        sky.Task("x", num_nodes=nodes)  # type: ignore[arg-type]
    with pytest.raises(SkyUsageError, match="num_nodes"):
        dag.freeze()


def test_missing_output_is_named() -> None:
    with sky.Dag() as dag:
        a = sky.Task("a").set_output("?:/x", size=1)
        sky.Task("b").set_input(a.output(1))
    with pytest.raises(SkyUsageError, match="a has no output 1"):
        dag.freeze()


def test_nested_graph_context_restores_the_outer_one() -> None:
    with sky.Dag() as outer:
        with sky.Dag() as inner:
            sky.Task("in")
        sky.Task("out")
    assert [task.name for task in inner] == ["in"] and [task.name for task in outer] == ["out"]
    assert sky.Task("nowhere").dag is None
