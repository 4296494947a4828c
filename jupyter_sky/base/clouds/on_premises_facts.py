"""Facts of this machine and of machines of one's own, which no catalog lists."""

from __future__ import annotations

from typing import ClassVar

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.translation import N_


class LocalFacts(CloudFacts):
    """Facts of this machine as a cloud."""

    name, title, colour = "local", "This machine", "#808080"
    note = "this machine, free"
    launchable = on_premises = True


class SshFacts(CloudFacts):
    """Facts of a pool of machines of one's own."""

    name, title, note = "ssh", "Machines of one's own", "machines of your own"
    launchable = on_premises = True


class SlurmFacts(CloudFacts):
    """Facts of a Slurm cluster."""

    driver = "jupyter_sky.clouds.slurm.driver:Slurm"
    name, title, note = "slurm", "Slurm", "nodes of your Slurm"
    account = N_("a login on a cluster with Slurm 20.11 or later")
    permissions = N_("to submit jobs to a partition")
    launchable = on_premises = has_live_offers = True
    settings: ClassVar = {
        "login": "Login node, as user@host or by its name in hosts.toml; without one, this machine "
        "where it has sbatch.",
        "options": "Further options of sbatch, such as --account=physics --qos=normal.",
        "price": "USD/h of a node, and by partition, such as '0.1, gpu=2.5'; else nodes are free.",
        "queue": "Time that a job may wait for nodes before another place is asked; 10m.",
    }


class ContainerFacts(CloudFacts):
    """Facts of containers on this machine."""

    driver = "jupyter_sky.clouds.container:Container"
    name, title, short_title = "container", "Containers on this machine", "Containers"
    note, colour = "containers on this machine, free", "#495057"
    launchable = on_premises = has_live_offers = only_by_name = runs_images = True
    settings: ClassVar = {
        "image": "Image of containers, with a shell and either sshd, apt or apk.",
        "options": "Further options of 'podman run', such as -v /data:/data:ro.",
        "program": "podman or docker, or its path; the first that is installed.",
    }


class KubernetesFacts(CloudFacts):
    """Facts of Kubernetes clusters."""

    driver = "jupyter_sky.clouds.kubernetes.driver:Kubernetes"
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
