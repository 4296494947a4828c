"""Pods as requests: their IDs, and what is asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_sky.clouds.kubernetes.nodes import GPU, NodeKind, affinity
from jupyter_sky.clouds.launches.machine_script import SETUP_COMMAND, SETUP_VARIABLE, pack_script
from jupyter_sky.clouds.provider.naming import TOKEN, fit_name
from jupyter_sky.clouds.provider.values import LaunchRequest, MachineConfig


def make_pod(
    name: str,
    request: LaunchRequest,
    config: MachineConfig,
    tags: Mapping[str, str],
    image: str,
    kinds: Sequence[NodeKind],
) -> dict[str, Any]:
    """Return a pod that is one machine of a request: what it asks for is its limit, too.

    Parameters
    ----------
    tags
        Written on it, as annotations: labels may not hold any text.
    kinds
        Of the nodes that it may run on.
    """
    offer = request.offer
    amounts = {"cpu": f"{offer.vcpus:g}", "memory": f"{round(offer.memory * 1024)}Mi"}
    amounts |= {GPU: f"{offer.gpu_count:g}"} if offer.gpu else {}
    if request.resources.disk:
        amounts["ephemeral-storage"] = f"{config.disk:g}Gi"
    container = {
        "name": "machine",
        "image": image,
        "command": ["sh", "-c", SETUP_COMMAND],
        "env": [{"name": SETUP_VARIABLE, "value": pack_script(config.script)}],
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"runAsUser": 0},
    }
    keys = dict.fromkeys(key for kind in kinds for key in kind.taints())
    spec = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": max(1, round(config.lease_end - time.time())),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "affinity": affinity(kinds),
        "tolerations": [{"key": key, "operator": "Exists"} for key in keys],
        "containers": [container],
    }
    labels = {TOKEN: fit_name(request.token, 60)}
    metadata = {"name": name, "labels": labels, "annotations": dict(tags)}
    return {"metadata": metadata, "spec": spec}


def split_id(id: str) -> tuple[str, str, str]:
    """Return context, namespace and name of a pod; names of contexts may contain slashes.

    Examples
    --------
    >>> split_id("arn:aws:eks:eu-west-1:1:cluster/ml/team/sky-a-0")
    ('arn:aws:eks:eu-west-1:1:cluster/ml', 'team', 'sky-a-0')
    """
    context, namespace, name = id.rsplit("/", 2)
    return context, namespace, name


def read_tags(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what was written on a pod: annotations, as labels may not hold any text."""
    return pod["metadata"].get("annotations") or {}
