"""Task files: what their fields become, what is refused with its line, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.dag.dag import Dag
from jupyter_sky.workflows.pipelines.files.located_yaml import read_documents
from jupyter_sky.workflows.pipelines.files.task_file import read_task_file
from jupyter_sky.workflows.pipelines.files.task_file_writer import describe_dag
from jupyter_sky.workflows.pipelines.files.task_resources import write_resources
from jupyter_sky.workflows.pipelines.model.task_body import make_graph

TRAINING = """\
name: finetune-${SIZE}
workdir: ./src
num_nodes: 2

resources:
  accelerators: {A100-80GB: 8, H100: 8}
  cpus: 32+
  memory: 256+
  disk_size: 512
  disk_tier: high
  use_spot: true
  any_of:
    - infra: aws/us-east-1
    - infra: gcp
    - cloud: azure
      region: eastus

envs:
  SIZE: 7b
  EPOCHS: 3
secrets:
  HF_TOKEN:

file_mounts:
  /data: s3://my-data/imagenet
  ~/conf: ./conf
  /ckpt: {name: my-ckpt, store: gcs, mode: MOUNT}
  /warm: {source: "s3://warm/", mode: COPY}

setup: |
  pip install -r requirements.txt
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES train.py --epochs $EPOCHS
outputs:
  s3://models/${SIZE}: 14
config:
  kubernetes: {}
"""


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Dag]:
    """Return a reader of texts, in a folder with what they name."""
    monkeypatch.chdir(tmp_path)
    for name in ("src", "conf"):
        (tmp_path / name).mkdir()
    (tmp_path / "jobs.py").write_text("def fit(*found): return 1\ndef hours(offer): return 2.0\n")

    def read_text(text: str, **values: object) -> Dag:
        (tmp_path / "task.yaml").write_text(text)
        return read_task_file(Path("task.yaml"), values).dag

    return read_text


def test_fields_of_a_task_have_their_meaning(read: Callable[..., Dag]) -> None:
    (task,) = read(TRAINING)
    assert task.name == "finetune-7b" and task.num_nodes == 2
    assert [need.command_line() for need in task.needs][:2] == [
        f"--cpus 32+ --memory 256+ --gpus {gpu}:8 --disk 512 --cloud aws --region us-east-1 --spot"
        for gpu in ("A100-80GB", "H100")
    ]
    assert len(task.needs) == 6 and task.needs[4].region == "eastus"
    environment = task.environment
    assert environment.variables == {"SIZE": "7b", "EPOCHS": "3"}
    assert environment.secrets == ("HF_TOKEN",) and environment.workdir == "src"
    assert environment.files == {
        "/data": "s3://my-data/imagenet",
        "~/conf": "conf",
        "/warm": "s3://warm/",
    }
    assert environment.mounts == {"/ckpt": "gs://my-ckpt"}
    assert task.outputs[0].uri == "s3://models/7b" and task.outputs[0].gb == 14


def test_what_is_not_done_is_said_with_its_line(read: Callable[..., Dag]) -> None:
    read(TRAINING)
    assert [text.partition(":")[0] for text in read_task_file(Path("task.yaml")).warnings] == [
        "task.yaml, line 36",
        "task.yaml, line 27",
        "task.yaml, line 10",
    ]
    with pytest.warns(UserWarning, match="disk_tier is ignored"):
        assert len(sky.read_dag("task.yaml", SIZE="70b")) == 1


def test_values_replace_those_of_the_file(read: Callable[..., Dag]) -> None:
    (task,) = read(TRAINING, SIZE="70b", EPOCHS=9)
    assert task.name == "finetune-70b" and task.environment.variables["EPOCHS"] == "9"
    with pytest.raises(SkyUsageError, match="no variable EPOCH in envs"):
        read(TRAINING, EPOCH=1)


def test_requests_are_on_demand_unless_the_file_says_otherwise(read: Callable[..., Dag]) -> None:
    texts = ["", "resources: {use_spot: true}\n", "resources: {use_spot: null}\n"]
    markets = [read(f"run: ls\n{text}").tasks[0].needs[0].spot for text in texts]
    assert markets == [False, True, None]


CHAIN = """\
name: three
---
name: a
run: ls > $OUTPUT[0]/x
outputs: {"?:/x": 1, s3://b/y: {estimated_size_gigabytes: 2, region: us-east-1}}
---
name: b
inputs: {a.output(0):}
x-sky: {function: "jobs:fit", retry: 2, timeout: 1h30m, time: "jobs:hours", residency: [eu]}
---
name: c
run: cat
resources: {accelerators: T4, job_recovery: {max_restarts_on_errors: 3}}
"""


def links(dag: Dag) -> list[tuple[str, str]]:
    graph = dag.freeze()
    return [(graph.tasks[edge.src].name, graph.tasks[edge.dst].name) for edge in graph.edges]


def test_documents_follow_each_other(read: Callable[..., Dag]) -> None:
    dag = read(CHAIN)
    assert dag.name == "three" and links(dag) == [("a", "b"), ("b", "c")]
    b = dag["b"]
    assert b.run.__name__ == "fit" and (b.retries, b.timeout) == (2, 5400)
    assert b.estimator and b.residency == ("EU",) and dag["c"].retries == 3
    assert dag["a"].outputs[1].region == "us-east-1"
    assert make_graph(dag).tasks["b"].retries == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: p\nexecution: parallel\n---\nname: a\nrun: a\n---\nname: b\nrun: b", []),
        ("name: a\nrun: a\n---\nname: b\nrun: b\nx-sky: {after: []}", []),
        (
            "name: a\nrun: a\n---\nname: b\nrun: b\n---\nname: c\nrun: c\nx-sky: {after: [a]}",
            [("a", "b"), ("a", "c")],
        ),
    ],
)
def test_order_of_documents_can_be_given(
    read: Callable[..., Dag], text: str, expected: list[tuple[str, str]]
) -> None:
    assert links(read(text)) == expected


@pytest.mark.parametrize("text", [TRAINING, CHAIN], ids=["training", "chain"])
def test_what_is_written_is_read_again(read: Callable[..., Dag], text: str, tmp_path: Path) -> None:
    dag = read(text)
    sky.write_dag(dag, "again.yaml")
    again = read_task_file(tmp_path / "again.yaml").dag
    assert describe_dag(again) == describe_dag(dag)
    assert links(again) == links(dag)
    assert [task.needs for task in again] == [task.needs for task in dag]


def test_a_graph_of_python_survives_the_way_through_a_file(
    read: Callable[..., Dag], tmp_path: Path
) -> None:
    with Dag("g") as dag:
        tasks = [sky.Task(name, run=f"./{name}\n./more") for name in "abcd"]
        a, b, c, d = tasks
        a.set_resources(cpus="2+", region="eu", intel_sgx=True).set_output("?:/x", size=3)
        b.set_resources({"gpus": "V100", "spot": True}, {"gpus": "tpu-v3-8"}).set_input(a.output())
        c.set_time_estimator("90m").set_spin_up(0.5)
        a >> [b, c] >> d
        dag.add_edge(a, d, size="2TB", residency="de")
        dag.same_cluster(a, c)
    sky.write_dag(dag, tmp_path / "g.yml")
    again = read_task_file(tmp_path / "g.yml").dag
    before, after = dag.freeze(), again.freeze()
    assert (after.edges, after.same_cluster) == (before.edges, before.same_cluster)
    assert [task.needs for task in after.tasks] == [task.needs for task in before.tasks]
    assert [task.estimator for task in after.tasks] == [task.estimator for task in before.tasks]
    assert again["a"].run == "./a\n./more"


def test_images_of_containers_are_read_and_written(tmp_path: Path) -> None:
    text = "run: ls\nresources:\n  cloud: container\n  image_id: docker:python:3.12\n"
    (tmp_path / "t.yaml").write_text(text)
    (task,) = sky.read_dag(tmp_path / "t.yaml").tasks
    [need] = task.needs
    assert need.image == "python:3.12"
    assert write_resources(need)["image_id"] == "docker:python:3.12"
    sky.write_dag(sky.read_dag(tmp_path / "t.yaml"), tmp_path / "again.yaml")
    assert "image_id: docker:python:3.12" in (tmp_path / "again.yaml").read_text()
    (again,) = sky.read_dag(tmp_path / "again.yaml").tasks
    assert again.needs == task.needs


def test_functions_without_a_name_are_not_written(tmp_path: Path) -> None:
    with Dag() as dag:
        sky.Task("here", run=lambda: 1)
    with pytest.raises(SkyUsageError, match=r"task here: .*lambda.* has no name"):
        sky.write_dag(dag, tmp_path / "g.yaml")
    assert not (tmp_path / "g.yaml").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no task"),
        ("- ls", "line 1: a task is no mapping"),
        ("run: {", "line 1"),
        ("run: ls\nrun: ps", "line 2: run is given twice"),
        ("run: ls\nressources: {}", "line 2: a task has no field 'ressources'\ndid you mean resou"),
        ("run: ls\nservice: {replicas: 2}", "line 2: service is not supported"),
        ("run: ls\nresources:\n  image_id: ami-0123", "line 3: image_id ami-0123: only images of"),
        (
            "run: ls\nresources:\n  image_id: {us-east-1: ami-01}",
            "line 3: image_id: only images of",
        ),
        ("run: ls\nresources:\n  image_id: 'docker:a b'", "line 3: image_id docker:a b: not the"),
        ("run: ls\nresources:\n  acceleratorz: V100", "line 3: resources has no field 'accelerat"),
        ("run: ls\nresources:\n  accelerators: V1000", "line 3: 'V1000' is not a known"),
        ("run: ls\nresources:\n  cpus: many", "line 3: --cpus many: not an amount"),
        ("run: ls\nresources:\n  infra: k8s/mine", "line 3: infra k8s/mine is not supported"),
        ("run: ls\nresources: {any_of: [{cpus: 1}], ordered: [{cpus: 1}]}", "exclude each other"),
        ("run: ls\nresources:\n  any_of:\n  - cpu: 4", "line 4: resources has no field 'cpu'"),
        ("run: ls\nnum_nodes: two", "line 2: 'two' is not a whole number"),
        ("run: ls\nenvs:\n  1X: a", "line 3: 1X is no name of a variable"),
        ("run: ls\nsecrets:\n  TOKEN: abc", "line 3: the value of the secret TOKEN stands in"),
        ("run: ls\nworkdir: {url: x}", "line 2: a workdir of git is not supported"),
        ("run: ls\nfile_mounts:\n  /a: {source: ./a, name: b}", "line 3: ./a is not uploaded"),
        ("run: ls\nfile_mounts:\n  /a: {mode: RW}", "line 3: mode RW is not supported"),
        ("run: ls\noutputs:\n  nowhere: 1", "line 3: 'nowhere' is not a place for data"),
        ("run: ls\ninputs:\n  b.output(0): 1", "line 3: there is no task 'b'"),
        ("setup: ls\nx-sky: {retries: 2}", "line 2: x-sky has no field 'retries'\ndid you mean"),
        ("run: ls\nx-sky: {timeout: 5}", None),
        ("run: ls\nx-sky: {timeout: soon}", "line 2: timeout soon: not a duration"),
        ("x-sky: {function: fit}", "line 1: fit is no function"),
        ("x-sky: {function: 'jobs:fti'}", "line 1: jobs:fti cannot be imported"),
        ("run: ls\nx-sky: {function: 'jobs:fit'}", "either run or x-sky.function"),
        ("name: a", "line 1: the task has nothing to run"),
        ("name: a\nrun: x\n---\nname: a\nrun: y", "two tasks are called a"),
        ("name: a\nrun: x\n---\nname: b\nrun: y\nx-sky:\n  after: [c]", "line 7: there is no task"),
        ("name: p\nexecution: both\n---\nrun: x\n---\nrun: y", "line 2: execution is serial or"),
    ],
)
def test_errors_name_their_line(read: Callable[..., Dag], text: str, message: str | None) -> None:
    if message is None:
        assert read(text).tasks[0].timeout == 5
        return
    with pytest.raises(SkyUsageError) as caught:
        read(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "x: &a [*a]",
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdef")),
    ],
    ids=["recursive", "exponential"],
)
def test_aliases_cannot_make_a_file_endless(text: str) -> None:
    with pytest.raises(SkyUsageError, match="too large"):
        read_documents(text, "task.yaml")


def test_merged_mappings_are_read(read: Callable[..., Dag]) -> None:
    text = "envs: &e {A: 1, B: 2}\nrun: ls\n---\nrun: ls\nenvs: {<<: *e, B: 3}\n"
    with pytest.raises(SkyUsageError, match="undefined alias"):  # documents share no anchors
        read(text)
    (task,) = read("run: ls\nenvs: {<<: {A: 1, B: 2}, B: 3}\n")
    assert task.environment.variables == {"A": "1", "B": "3"}


def test_what_the_machine_needs_is_checked_before_it_is_launched(
    read: Callable[..., Dag], tmp_path: Path
) -> None:
    for text, message in (
        ("run: ls\nworkdir: ./none", "there is no none"),
        ("run: ls\nworkdir: /usr", "/usr is not below"),
        ("run: ls\nfile_mounts: {/x: ./missing}", "there is no missing"),
        ("run: ls\nsecrets: {SKY_TEST_UNSET: }", "SKY_TEST_UNSET .* is not set"),
    ):
        with pytest.raises(SkyUsageError, match=message):
            make_graph(read(text))
