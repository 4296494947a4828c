"""Facts of Kubernetes clusters."""

from __future__ import annotations

from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.translation import N_


class KubernetesFacts(CloudFacts):
    """Facts of Kubernetes clusters."""

    provider = "jupyter_sky.clouds.kubernetes.provider:Kubernetes"
    name, title = "kubernetes", "Kubernetes"
    packages, install = ("kubernetes",), "pip install 'jupyter_sky[kubernetes]'"
    account = N_("a cluster, and a kubeconfig with a context for it")
    permissions = N_(
        "in a namespace: create, get, list and delete pods, pods/exec, pods/log, list events; list "
        "nodes and, where it may be allowed, all pods"
    )
    note, colour = "pods of clusters of your own", "#326ce5"
    launchable = on_premises = has_live_offers = only_by_name = runs_images = True
    settings: ClassVar = {
        "autoscaled": "Any text where clusters add nodes: all that a node can hold is offered.",
        "contexts": "Contexts of the kubeconfig to use, with commas; else all.",
        "image": "Image of pods, with a shell and either sshd, apt or apk.",
        "namespace": "Namespace of pods; else that of the context.",
        "node_selector": "Labels of nodes to use, such as pool=batch,disk=ssd.",
        "price": "USD/h of one vCPU with its memory; 0 where it costs nothing.",
        "scale_up_seconds": "Seconds that they may wait for one that an autoscaler adds.",
        "schedule_seconds": "Seconds that pods may wait for a node that has room.",
    }
