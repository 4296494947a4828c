"""Scheduler of a Kubernetes cluster: which node has room for a pod, and why none has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kubernetes.utils import parse_quantity

GPU = "nvidia.com/gpu"


def make_node(
    name: str,
    cpus: str,
    memory: str,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
    gpus: int = 0,
    ready: bool = True,
) -> dict[str, Any]:
    """Return a node as the API lists it."""
    allocatable = {"cpu": cpus, "memory": memory, "pods": "110"}
    allocatable |= {GPU: str(gpus)} if gpus else {}
    condition = {"type": "Ready", "status": str(ready)}
    known = {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    return {
        "metadata": {"name": name, "labels": known | dict(labels or {})},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": allocatable, "conditions": [condition]},
    }


def schedule(
    pod: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> tuple[str, str]:
    """Return the name of a node for a pod, else the scheduler's sentence why there is none.

    Parameters
    ----------
    pods
        Those that run, with the name of their node.
    """
    nodes, pods, reasons = list(nodes), list(pods), Counter[str]()
    for node in nodes:
        here = [each for each in pods if each["spec"].get("nodeName") == node["metadata"]["name"]]
        if not (found := list(_obstacles(pod, node, here))):
            return node["metadata"]["name"], ""
        reasons.update(found)
    said = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return "", f"0/{len(nodes)} nodes are available: {said}."


def _obstacles(
    pod: Mapping[str, Any], node: Mapping[str, Any], here: Iterable[Mapping[str, Any]]
) -> Iterable[str]:
    spec, labels = pod["spec"], node["metadata"]["labels"]
    keys = {each["key"] for each in spec.get("tolerations") or ()}
    for taint in node["spec"].get("taints") or ():
        if taint["key"] not in keys:
            yield f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
            return
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = terms.get("nodeSelectorTerms")
    if terms and not any(_meets(term["matchExpressions"], labels) for term in terms):
        yield "node(s) didn't match Pod's node affinity/selector"
        return
    for key, name in (("cpu", "cpu"), ("memory", "memory"), (GPU, GPU)):
        used = sum(_requested(each, key) for each in here)
        free = parse_quantity(node["status"]["allocatable"].get(key, 0)) - used
        if _requested(pod, key) > free:
            yield f"Insufficient {name}"


def _meets(expressions: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    def holds(each: Mapping[str, Any]) -> bool:
        among = labels.get(each["key"]) in each["values"]
        return among if each["operator"] == "In" else not among

    return all(map(holds, expressions))


def _requested(pod: Mapping[str, Any], key: str) -> Any:
    every = [each.get("resources", {}).get("requests", {}) for each in pod["spec"]["containers"]]
    return sum(parse_quantity(each.get(key, 0)) for each in every)
