"""Graphs of the SkyPilot paper: vision and NLP of its section 5.1, Airflow's of its Figure 10c."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from jupyter_sky.base.requests.dag.dag import Dag, Task
from jupyter_sky.decisions.optimizer.estimators import table

VISION_HOURS = {
    "train": {"V100": 27.8, "tpu-v3-8": 5.4},
    "infer": {"tpu-v3-8": 2.5, "T4": 14.8, "Inferentia": 8.2},
}
"""Hours of Figures 5 and 6, by task and accelerator."""
NLP_HOURS = {
    "proc": {"": 0.6},
    "train": {"V100": 13.3, "tpu-v3-8": 3.8},
    "infer": {"T4": 1.5, "Inferentia": 1.4},
}
"""Hours of Table 3."""

_AIRFLOW = """
create_entry_group: create_entry_gcs delete_entry_group get_entry_group
create_entry_gcs: create_tag_template delete_entry get_entry lookup_entry update_entry
create_tag_template: create_tag_template_field delete_tag_template_field
create_tag_template: get_tag_template update_tag_template
create_tag_template_field: create_tag delete_tag_template_field
create_tag_template_field: rename_tag_template_field update_tag_template_field
create_tag: delete_tag list_tags update_tag
create_entry_group: create_entry_group_result create_entry_group_result2
create_entry_gcs: create_entry_gcs_result create_entry_gcs_result2
create_tag_template: create_tag_template_result create_tag_template_result2
create_tag_template_field: create_tag_template_field_result create_tag_template_field_result2
create_tag: create_tag_result create_tag_result2
get_entry_group: delete_entry_group get_entry_group_result
get_entry: delete_entry get_entry_result
get_tag_template: delete_tag_template get_tag_template_result
lookup_entry: delete_entry lookup_entry_result
list_tags: delete_tag list_tags_result
update_entry: delete_entry
update_tag: delete_tag
update_tag_template: delete_tag_template
update_tag_template_field: rename_tag_template_field
rename_tag_template_field: delete_tag_template_field
create_entry_group: search_catalog
create_entry_gcs: search_catalog
create_tag_template: search_catalog
create_tag_template_field: search_catalog
create_tag: search_catalog
search_catalog: search_catalog_result
search_catalog: delete_tag delete_tag_template_field delete_tag_template delete_entry_group
search_catalog: delete_entry
delete_tag: delete_tag_template_field
delete_tag_template_field: delete_tag_template
delete_tag_template: delete_entry_group
delete_entry_group: delete_entry
"""


def airflow_edges() -> list[tuple[str, str]]:
    """Return the edges of Airflow's example graph ``example_complex``, by names of tasks."""
    edges: list[tuple[str, str]] = []
    for line in _AIRFLOW.split("\n"):
        producer, __, consumers = line.partition(":")
        edges += [(producer, consumer) for consumer in consumers.split()]
    return edges


def make_airflow(seed: int = 0) -> Dag:
    """Return Airflow's graph with the needs, random times and sizes of section 5.4."""
    draw = random.Random(seed)
    names = ("m5.2xlarge", "n2-standard-8", "Standard_D8s_v3")
    needs = [{"instance_type": name, "country": "us", "on_demand": True} for name in names]
    with Dag("complex") as dag:
        tasks: dict[str, Task] = {}
        for edge in airflow_edges():
            for name in edge:
                if name not in tasks:
                    tasks[name] = Task(name).set_resources(needs)
                    tasks[name].set_time_estimator(draw.random())
            dag.add_edge(tasks[edge[0]], tasks[edge[1]], size=100 * draw.random())
    return dag


def make_vision(only: str = "aws,azure,gcp", has_tpus: bool = True) -> Dag:
    """Return the vision pipeline: trained on 150 GB of images on S3, then 10^8 are classified.

    Parameters
    ----------
    only
        Clouds that may be used.
    has_tpus
        Whether slices of TPUs may be used.
    """
    tpu = ("tpu-v3-8",) if has_tpus else ()
    with Dag("vision") as dag:
        train = Task("train").set_input("s3://imagenet", size="150GB", region="us-east-1")
        train.set_output("?:/model", size="100MB").set_resources(_asks(only, "V100", *tpu))
        infer = Task("infer").set_input(train.output(0))
        infer.set_resources(_asks(only, *tpu, "T4", "Inferentia"))
        train >> infer
    return _estimated(dag, VISION_HOURS)


def make_nlp(only: str = "aws,azure,gcp", has_tpus: bool = True) -> Dag:
    """Return the NLP pipeline: confidential data in an enclave, BERT fine-tuned, then used."""
    tpu = ("tpu-v3-8",) if has_tpus else ()
    with Dag("nlp") as dag:
        proc = Task("proc").set_input("az://reviews", size="32GB", region="westus2")
        proc.set_output("?:/filtered", size="1GB")
        proc.set_resources(intel_sgx=True, cpus="8", **_asks(only, "")[0])
        train = Task("train").set_input(proc.output(0)).set_output("?:/bert", size="0.5GB")
        train.set_resources(_asks(only, "V100:4", *tpu))
        infer = Task("infer").set_input(train.output(0))
        infer.set_resources(_asks(only, "T4", "Inferentia"))
        proc >> train >> infer
    return _estimated(dag, NLP_HOURS)


def _asks(clouds: str, *accelerators: str) -> list[dict[str, Any]]:
    """Return requests of the paper: on demand, in the USA."""
    place = {"cloud": clouds, "country": "us", "on_demand": True}
    return [place | ({"gpus": name} if name else {}) for name in accelerators]


def _estimated(dag: Dag, hours: Mapping[str, Mapping[str, float]]) -> Dag:
    for task in dag:
        known = hours[task.name]
        task.set_time_estimator(known[""] if "" in known else table(known))
    return dag
