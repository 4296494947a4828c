"""Nodes of a cluster of Kubernetes as places for pods: what is free on them, and their labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GPU = "nvidia.com/gpu"
ARCH = "kubernetes.io/arch"
SPOT_LABELS: Mapping[str, str] = {
    "cloud.google.com/gke-preemptible": "true",
    "cloud.google.com/gke-spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "node.kubernetes.io/lifecycle": "spot",
}
"""Labels, with their values, of nodes that are taken back: their cloud or autoscaler sets one."""
GPU_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "skypilot.co/accelerator",
)
"""Labels of nodes that hold the name of their GPUs."""
_ARCHES = {"amd64": "x86_64"}
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are equal to a pod.

    Attributes
    ----------
    arch : str
        ``x86_64`` or ``arm64``.
    spot : bool
        Whether their cloud may take them back.
    gpu, gpu_memory
        Canonical name of their GPUs, and GiB of each; empty and 0 without one.
    selector : tuple
        Labels with their values that only such nodes have.
    """

    arch: str
    spot: bool
    gpu: str = ""
    gpu_memory: float = 0.0
    selector: tuple[tuple[str, str], ...] = ()

    def expressions(self) -> list[dict[str, Any]]:
        """Return the requirements of a pod that runs on such nodes."""
        found = [{"key": k, "operator": "In", "values": [value]} for k, value in self.selector]
        if not self.spot:
            found += [
                {"key": key, "operator": "NotIn", "values": [value]}
                for key, value in SPOT_LABELS.items()
            ]
        return found

    def taints(self) -> list[str]:
        """Return the keys of taints that a pod has to tolerate in order to run there."""
        keys = [key for key, _ in self.selector if key in SPOT_LABELS]
        return [*keys, GPU] if self.gpu else keys


@dataclass(frozen=True, slots=True)
class Room:
    """Part of a node that a pod can have: vCPUs, GiB and GPUs."""

    cpus: float
    memory: float
    gpus: int


def read_kind(node: Mapping[str, Any], wanted: Mapping[str, str]) -> NodeKind | None:
    """Return the kind of a node; None for one that takes no pods of ours.

    Parameters
    ----------
    wanted
        Labels that a node must have.
    """
    labels: dict[str, str] = node["metadata"].get("labels") or {}
    if not wanted.items() <= labels.items():
        return None
    spot = [(key, value) for key, value in SPOT_LABELS.items() if labels.get(key) == value]
    arch = labels.get(ARCH, "amd64")
    selector = [*wanted.items(), (ARCH, arch), *spot]
    gpu, memory = "", 0.0
    label = next((each for each in GPU_LABELS if labels.get(each)), "")
    if label and GPU in node["status"]["allocatable"]:
        mib = labels.get("nvidia.com/gpu.memory", "")
        gpu, memory = read_gpu(labels[label], int(mib) / 1024 if mib.isdigit() else None)
        selector.append((label, labels[label]))
    kind = NodeKind(_ARCHES.get(arch, arch), bool(spot), gpu, memory, tuple(selector))
    return kind if _takes_pods(node, kind.taints()) else None


def _takes_pods(node: Mapping[str, Any], tolerated: Collection[str]) -> bool:
    """Whether a node is ready, not cordoned, and has no taint that its pods do not tolerate."""
    spec, conditions = node.get("spec") or {}, node["status"].get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    tainted = any(
        taint["effect"] != "PreferNoSchedule" and taint["key"] not in tolerated
        for taint in spec.get("taints") or ()
    )
    return ready and not tainted and not spec.get("unschedulable")


def read_gpu(name: str, gib: float | None = None) -> tuple[str, float]:
    """Return the canonical name of a GPU, and the GiB of its memory.

    Examples
    --------
    >>> read_gpu("NVIDIA-A100-SXM4-80GB"), read_gpu("nvidia-l4")
    (('A100-80GB', 80.0), ('L4', 24.0))
    """
    from jupyter_sky.clouds.prices.entries import canonical_accelerator, nominal_memory

    text = name.replace("-SHARED", "")
    for cut in ("-SXM4", "-SXM5", "-SXM2", "-PCIE", "-PCIe", "-HBM3", "-HBM2e"):
        text = text.replace(cut, "")
    gpu = canonical_accelerator(text, gib)
    return gpu, nominal_memory(gpu, gib) or 0.0


def read_room(node: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> Room:
    """Return what of a node its pods leave free.

    Parameters
    ----------
    pods
        Those that run on it, or will.
    """
    from kubernetes.utils import parse_quantity

    def size(amounts: Mapping[str, Any], key: str) -> float:
        return float(parse_quantity(amounts.get(key) or 0))

    taken = [each for pod in pods for each in _requests(pod)]
    free = {
        key: size(node["status"]["allocatable"], key) - sum(size(each, key) for each in taken)
        for key in ("cpu", "memory", GPU)
    }
    return Room(free["cpu"], free["memory"] / _MIB / 1024, int(free[GPU]))


def _requests(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what each container of a pod has been promised."""
    for container in pod["spec"]["containers"]:
        yield (container.get("resources") or {}).get("requests") or {}


def affinity(kinds: Sequence[NodeKind]) -> dict[str, Any]:
    """Return the affinity of a pod that may run on nodes of any of some kinds."""
    terms = [{"matchExpressions": kind.expressions()} for kind in kinds]
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": needed}
