"""Pods of Kubernetes: each is a machine, reached by the exec channel of its cluster.

A region is a context of the kubeconfig. A pod needs no service, port or firewall, and gets no token
of the cluster. It ends with its first process, which is the script that holds the lease, and the
cluster ends it by ``activeDeadlineSeconds``; pods that have ended are swept.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import Event
from typing import ClassVar, TypeVar

from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import N_, _
from jupyter_sky.clouds.kubernetes import connection
from jupyter_sky.clouds.kubernetes.api import (
    KUBECONFIG,
    Context,
    KubernetesApi,
    find_clusters,
    has_account,
    kubeconfig,
)
from jupyter_sky.clouds.launches.machine_script import (
    DEFAULT_IMAGE,
    SETUP_COMMAND,
    SETUP_VARIABLE,
    SSHD_PROGRAM,
    pack_script,
)
from jupyter_sky.clouds.launches.machine_slices import powers_of_two, slice_name, slice_sizes
from jupyter_sky.clouds.launches.rest_provider import RANK, ListedMachine, RestProvider
from jupyter_sky.clouds.provider.classification import ProviderError, Refinement, group_codes
from jupyter_sky.clouds.provider.naming import TOKEN, container_name, fit_name
from jupyter_sky.clouds.provider.parallel_requests import StopRequested, pause, send_parallel
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig, MachineState

# -- Reading of a pod's status: whether it runs, why it does not, and what has ended it -----------

UNSCHEDULABLE = "Unschedulable"
PULL_CODES = ("ErrImagePull", "ImagePullBackOff")
"""Reasons of a container whose pull has failed: its cluster tries again, later each time."""
PULL_END_SECONDS = 300.0
"""Age of a pod that has no image by then: some five pulls have failed."""
IMAGE_CODES = (
    *PULL_CODES,
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
"""Reasons for which a container waits that do not pass by themselves, or not always."""
_TAKEN = (
    "Evicted",
    "Preempting",
    "Preempted",
    "NodeLost",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
)
"""Reasons of pods whose node was taken back or is lost, or that made room for others."""


@dataclass(frozen=True, slots=True)
class PodState:
    """State of a pod as that of a machine; see `Machine`."""

    state: MachineState
    reason: str = ""
    preempted: bool = False


def parse_state(pod: JsonMapping) -> PodState:
    """Return the state of a pod, and why it has ended.

    Examples
    --------
    >>> parse_state({"status": {"phase": "Failed", "reason": "DeadlineExceeded"}}).reason
    'its lease is over (DeadlineExceeded)'
    """
    status = pod["status"]
    phase = status.get("phase")
    if phase in ("Succeeded", "Failed"):
        return _parse_end(status)
    trouble = find_trouble(pod)
    if trouble and trouble.code in IMAGE_CODES and not _is_tried_again(trouble, status):
        return PodState("ended", f"{trouble.code}: {trouble.message}")
    return PodState("running" if phase == "Running" else "starting")


def _is_tried_again(trouble: ProviderError, status: JsonMapping) -> bool:
    """Whether a pull may still succeed; of a pod that does not say its begin, the first alone."""
    if trouble.code not in PULL_CODES:
        return False
    begun = status.get("startTime")
    if not begun:
        return trouble.code == PULL_CODES[0]
    return time.time() - datetime.fromisoformat(begun).timestamp() < PULL_END_SECONDS


def _parse_end(status: JsonMapping) -> PodState:
    reason = status.get("reason") or ""
    disrupted = _condition(status, "DisruptionTarget")
    if disrupted.get("status") == "True" or reason in _TAKEN:
        words = reason or disrupted.get("reason") or ""
        said = status.get("message") or disrupted.get("message") or ""
        return PodState("ended", f"{words}: {said}".rstrip(": "), preempted=True)
    if reason == "DeadlineExceeded":
        return PodState("ended", _("its lease is over ({reason})").format(reason=reason))
    ended = (_container(status).get("state") or {}).get("terminated") or {}
    if ended.get("reason") == "OOMKilled":
        return PodState("ended", _("it needed more memory than its limit (OOMKilled)"))
    code = ended.get("exitCode")
    text = _("its first process has ended with exit code {code}").format(code=code)
    return PodState("ended", reason or text)


def find_trouble(pod: JsonMapping) -> ProviderError | None:
    """Return why a pod does not start: no node has room, or its image cannot be had.

    Examples
    --------
    >>> full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    >>> find_trouble({"status": {"phase": "Pending", "conditions": [full]}}).code
    'Unschedulable'
    """
    status = pod["status"]
    waiting = (_container(status).get("state") or {}).get("waiting") or {}
    if waiting.get("reason") in IMAGE_CODES:
        return ProviderError(waiting.get("message") or waiting["reason"], code=waiting["reason"])
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == UNSCHEDULABLE:
        return ProviderError(scheduled.get("message") or UNSCHEDULABLE, code=UNSCHEDULABLE)
    return None


def has_started(pod: JsonMapping) -> bool:
    """Whether the container of a pod runs, or has run."""
    return pod["status"].get("phase") not in (None, "Pending")


def _condition(status: JsonMapping, kind: str) -> JsonMapping:
    every = status.get("conditions") or ()
    return next((each for each in every if each["type"] == kind), {})


def _container(status: JsonMapping) -> JsonMapping:
    return next(iter(status.get("containerStatuses") or ()), {})


# -- Pods of Kubernetes: each is a machine, reached by the exec channel of its --------------------

log = logging.getLogger(__name__)
T = TypeVar("T")

_ACCESS = "kubectl auth can-i create pods/exec, in the context and namespace, says what is allowed"
_POD_SECURITY = (
    r"the namespace enforces \1, and pods of machines run as root: kubectl label namespace NAME "
    "pod-security.kubernetes.io/enforce=baseline --overwrite allows it; or name another one by the "
    "setting providers.kubernetes.namespace"
)
_IMAGE = "name another image: --image, or the setting providers.kubernetes.image"
_LOGIN = (
    "write a kubeconfig with a context for the cluster (~/.kube/config or KUBECONFIG); "
    "kubectl config get-contexts lists them"
)


class Kubernetes(RestProvider):
    """Clusters of Kubernetes; an ID is ``context/namespace/pod``.

    Examples
    --------
    >>> full = 'pods "a" is forbidden: exceeded quota: team, requested: limits.cpu=2'
    >>> Kubernetes.explain_refusal(ProviderError(full, code="Forbidden", status=403)).cause
    'quota'
    """

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

    api = ""
    login, power_off, unconfigured = _LOGIN, "kill 1", N_("no kubeconfig")
    leftover = "pod that has ended: {id}"
    errors: ClassVar = group_codes(
        ("capacity", "region", "", UNSCHEDULABLE),
        ("permission", "region", _ACCESS, "Unauthorized Forbidden"),
        ("permission", "region", _LOGIN, KUBECONFIG),
        ("invalid", "region", "", "Invalid BadRequest NotFound AlreadyExists"),
        ("invalid", "region", _IMAGE, " ".join(IMAGE_CODES)),
        ("throttled", "region", "", "TooManyRequests"),
        ("transient", "region", "", "Conflict Expired InternalError ServiceUnavailable Timeout"),
    )
    refinements = (
        Refinement(
            "Forbidden",
            r"exceeded quota|usage per (Container|Pod)",
            cause="quota",
            fix="kubectl describe resourcequota,limitrange says what is left",
        ),
        Refinement("Forbidden", r"violates PodSecurity \"(\w+)", fix=_POD_SECURITY),
    )

    @property
    def clusters(self) -> KubernetesApi:
        """The clusters of the kubeconfig, as the settings restrict them now."""
        return find_clusters(self.setting("contexts", ""), self.setting("namespace", ""))

    def configured(self) -> str:
        """Return where the kubeconfig is; empty without one."""
        return kubeconfig() or ("the account of this pod" if has_account() else "")

    def identify(self) -> str:
        """Prove the credentials of each context by one request."""

        def prove(each: Context) -> list[str]:
            self.clusters.call(each.name, "list_namespaced_pod", each.namespace, limit=1)
            return [f"{each.name} ({each.namespace})"]

        return ", ".join(self._ask_each(prove))

    def _ask_each(self, ask: Callable[[Context], list[T]]) -> list[T]:
        """Return the answers of all contexts; those that do not answer are left out with a warning.

        A kubeconfig has clusters that are reached from some networks only.
        """

        def attempt(context: Context, __: Event) -> list[T] | Exception:
            try:
                return ask(context)
            except (ProviderError, ConnectionError) as error:
                return error

        contexts = self.clusters.contexts()
        found = send_parallel([partial(attempt, each) for each in contexts], bool)
        errors = [each for each in found if isinstance(each, Exception)]
        if errors and len(errors) == len(found):
            raise errors[0]
        for context, each in zip(contexts, found, strict=True):
            if isinstance(each, Exception):
                log.warning("kubernetes: context %s is left out: %s", context.name, each)
        return [one for each in found if isinstance(each, list) for one in each]

    # -- what is free ---------------------------------------------------------------------------

    def offers(self) -> list[Offer]:
        """Return parts of nodes, of all contexts that answer."""
        return self._ask_each(lambda each: list(self._offers_of(each.name)))

    def _offers_of(self, context: str) -> Iterator[Offer]:
        kinds = dict[tuple[NodeKind, int, int, int], None]()
        for kind, room in self._rooms(context):
            for count in powers_of_two(1, room.gpus) if kind.gpu else [0]:
                sizes = slice_sizes(room.cpus, room.memory)
                kinds |= {(kind, *size, count): None for size in sizes}
        for kind, cpus, memory, count in kinds:
            yield Offer(
                self.name,
                context,
                slice_name(cpus, memory, kind.gpu, count),
                cpus,
                memory,
                gpu=kind.gpu or None,
                gpu_count=count,
                gpu_memory=kind.gpu_memory or None,
                spot=kind.spot,
                price=cpus * self.setting("price", 0.0),
                source=self.live_source,
                arch=kind.arch,
            )

    def _rooms(self, context: str) -> Iterator[tuple[NodeKind, Room]]:
        """Yield the kind of each node that takes pods, and what is free there."""
        pods = dict[str, list[JsonObject]]()
        for pod in () if self.setting("autoscaled", "") else self._running_pods(context):
            pods.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        for node, kind in self._nodes(context):
            yield kind, read_room(node, pods.get(node["metadata"]["name"], ()))

    def _nodes(self, context: str) -> Iterator[tuple[JsonObject, NodeKind]]:
        pairs = [each.partition("=") for each in self.setting("node_selector", "").split(",")]
        wanted = {key.strip(): value.strip() for key, __, value in pairs if key.strip()}
        for node in self.clusters.list_all(context, "list_node"):
            if kind := read_kind(node, wanted):
                yield node, kind

    def _running_pods(self, context: str) -> list[JsonObject]:
        """Return the pods that hold a part of a node; ours alone where others may not be listed."""
        phases = "status.phase!=Succeeded,status.phase!=Failed"
        listed = partial(self.clusters.list_all, context, field_selector=phases)
        try:
            return list(listed("list_pod_for_all_namespaces"))
        except ProviderError as error:
            if error.status != 403:
                raise
            return list(listed("list_namespaced_pod", self.clusters.namespace(context)))

    # -- machines -------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, config: MachineConfig, stop: Event) -> list[Machine]:
        """Create pods, and wait until each has a node and its image."""
        machines = super().launch(request, config, stop)
        try:
            self._await_accepted(request, stop)
        except (ProviderError, StopRequested) as error:
            if not self.is_transient(error):
                self._give_up(request.token, machines)
            raise
        return machines

    def _await_accepted(self, request: LaunchRequest, stop: Event) -> None:
        context, token = request.offer.region, request.token
        Acceptance(
            lambda: [pod for pod in self._pods(context) if read_tags(pod)[TOKEN] == token],
            partial(self._list_events, context),
            self.setting("schedule_seconds", SCHEDULE_SECONDS),
            self.setting("scale_up_seconds", SCALE_UP_SECONDS),
        ).wait(stop)

    def _list_events(self, context: str, pod: str) -> Iterable[JsonObject]:
        """Return the events of a pod; none where they may not be listed."""
        namespace, of_pod = self.clusters.namespace(context), f"involvedObject.name={pod}"
        listed = partial(self.clusters.list_all, context, "list_namespaced_event", namespace)
        try:
            return list(listed(field_selector=of_pod))
        except ProviderError as error:
            if error.status != 403:
                raise
            return []

    def prepare_launch(self, request: LaunchRequest, config: MachineConfig) -> list[NodeKind]:
        """Return the kinds of nodes that an offer is of."""
        offer = request.offer
        kinds = {kind for __, kind in self._nodes(offer.region)}
        wanted = (offer.arch, offer.spot, offer.gpu or "")
        found = [each for each in kinds if (each.arch, each.spot, each.gpu) == wanted]
        if not found:
            text = f"no node of {offer.region} is {offer.instance_type}"
            raise ProviderError(text, code=UNSCHEDULABLE)
        return found

    def create_machine(
        self,
        request: LaunchRequest,
        config: MachineConfig,
        tags: Mapping[str, str],
        prepared: Sequence[NodeKind],
    ) -> Machine:
        """Create one pod; one of its name is there already where an answer was lost."""
        context = request.offer.region
        namespace = self.clusters.namespace(context)
        name = container_name(request.token, tags[RANK])
        image = request.resources.image or self.setting("image", DEFAULT_IMAGE)
        body = make_pod(name, request, config, tags, image, prepared)
        try:
            self.clusters.call(context, "create_namespaced_pod", namespace, body)
        except ProviderError as error:
            if error.code != "AlreadyExists":
                raise
        return self.tagged(tags, id=f"{context}/{namespace}/{name}", state="starting")

    def list_machines(self) -> list[ListedMachine]:
        """Return the pods that were launched from here, in all contexts that answer."""
        return self._ask_each(lambda each: self._list_context(each.name))

    def list_in(self, regions: Collection[str] | None) -> list[ListedMachine]:
        """Return the pods that were launched from here, in some contexts."""
        if regions is None:
            return self.list_machines()
        return [one for context in sorted(regions) for one in self._list_context(context)]

    def _list_context(self, context: str) -> list[ListedMachine]:
        return [ListedMachine(self._parse(context, pod), context) for pod in self._pods(context)]

    def _pods(self, context: str) -> Iterable[JsonObject]:
        namespace = self.clusters.namespace(context)
        every = self.clusters.list_all(
            context, "list_namespaced_pod", namespace, label_selector=TOKEN
        )
        return (pod for pod in every if TOKEN in read_tags(pod))

    def _parse(self, context: str, pod: JsonMapping) -> Machine:
        meta, state = pod["metadata"], parse_state(pod)
        namespace, name = meta["namespace"], meta["name"]
        command = (sys.executable, "-m", connection.__name__)
        return self.tagged(
            read_tags(pod),
            id=f"{context}/{namespace}/{name}",
            state=state.state,
            reason=state.reason,
            preempted=state.preempted,
            address=name,
            private=pod["status"].get("podIP") or "",
            through=(*command, context, namespace, name, f"/{SSHD_PROGRAM}"),
        )

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Return the pods of these IDs, those that have ended, too."""
        contexts = {split_id(id)[0] for id in ids}
        return [each.machine for each in self.list_in(contexts) if each.machine.id in ids]

    def started_machines(self, machines: Sequence[Machine]) -> list[Machine]:
        """Return the pods that run: one that no node has taken costs nothing."""
        found = self.describe([machine.id for machine in machines])
        return [machine for machine in found if machine.state == "running"]

    def delete_machine(self, id: str) -> None:
        """Delete one pod, also one that has ended."""
        context, namespace, name = split_id(id)
        self.clusters.call(context, "delete_namespaced_pod", name, namespace)

    def console(self, id: str) -> str:
        """Return the last lines that a pod has printed."""
        context, namespace, name = split_id(id)
        return self.clusters.call(
            context, "read_namespaced_pod_log", name, namespace, tail_lines=20
        )


# -- Wait for pods until each has a node and its image, as far as their cluster can bring ---------

SCHEDULE_SECONDS = 60.0
"""Time that pods may wait for a node that has room, unless the settings say another."""
SCALE_UP_SECONDS = 900.0
"""Time that an autoscaler has to add a node, once it has said so."""
SCALE_UP_REASONS = ("TriggeredScaleUp", "Nominated")
"""Events of pods for which a node comes: of the cluster autoscaler, and of Karpenter."""
PULL_SECONDS = 30.0
"""A pull of an image that takes longer is waited for with the start of the machine."""
PULL_TRIES = 3
"""Pulls that fail before a launch is given up: a cluster makes them after 0, 10 and 30 s."""
PULL_RETRY_SECONDS = 120.0
"""Time from the first one on where the cluster does not tell how many have failed."""
_POLL_SECONDS, _LATE_POLL_SECONDS = 0.5, 5.0
_FAILED_PULL = "Failed to pull image"

Pods = Sequence[JsonMapping]


@dataclass(frozen=True, slots=True)
class FailedPulls:
    """Pulls of a pod's image that have failed.

    Attributes
    ----------
    count
        Their number, by the events of the pod; 0 where none are told.
    words
        Reason for the last one; empty where it is not told.
    """

    count: int = 0
    words: str = ""


def count_failed_pulls(events: Iterable[JsonMapping]) -> FailedPulls:
    """Return the pulls that have failed by the events of a pod.

    Examples
    --------
    >>> told = {"reason": "Failed", "message": 'Failed to pull image "x": not found', "count": 3}
    >>> count_failed_pulls([told])
    FailedPulls(count=3, words='Failed to pull image "x": not found')
    """
    failed = [each for each in events if (each.get("message") or "").startswith(_FAILED_PULL)]
    counts = [(each.get("series") or {}).get("count") or each.get("count") or 1 for each in failed]
    return FailedPulls(sum(counts), failed[-1]["message"] if failed else "")


class Acceptance:
    """Wait for the pods of one launch.

    Parameters
    ----------
    look
        Returns the pods.
    list_events
        Returns the events of a pod by its name.
    schedule_seconds, scale_up_seconds
        Time that pods may wait for a node that has room, and for one that an autoscaler adds.
    """

    def __init__(
        self,
        look: Callable[[], Pods],
        list_events: Callable[[str], Iterable[JsonMapping]],
        schedule_seconds: float = SCHEDULE_SECONDS,
        scale_up_seconds: float = SCALE_UP_SECONDS,
    ) -> None:
        self._look, self._list_events = look, list_events
        self._patience, self._scale_up = schedule_seconds, scale_up_seconds
        self._begun = time.monotonic()
        self._first_failure: dict[str, float] = {}  # of a pull, by the name of its pod

    def wait(self, stop: Event) -> None:
        """Wait until each pod has a node, and its image unless that takes long.

        Raises
        ------
        ProviderError
            No node has room and none comes, an image cannot be had, or a pod cannot start.
        """
        while True:
            pods = self._look()
            troubles = [(pod, found) for pod in pods if (found := find_trouble(pod))]
            for pod, trouble in troubles:
                self._check(pod, trouble)
            waited = time.monotonic() - self._begun
            full = [found for __, found in troubles if found.code == UNSCHEDULABLE]
            is_late = bool(full) and waited > self._patience
            if is_late and (waited > self._scale_up or not self._is_scaled_up(pods)):
                raise full[0]
            if not troubles and (waited > PULL_SECONDS or all(map(has_started, pods))):
                return
            pause(stop, _LATE_POLL_SECONDS if is_late else _POLL_SECONDS)

    def _check(self, pod: JsonMapping, trouble: ProviderError) -> None:
        """Raise the trouble of a pod that does not pass; a cluster tries failed pulls again."""
        if trouble.code == UNSCHEDULABLE:
            return
        if trouble.code not in PULL_CODES:
            raise trouble
        name, now = pod["metadata"]["name"], time.monotonic()
        first = self._first_failure.setdefault(name, now)
        pulls = count_failed_pulls(self._list_events(name))
        if pulls.count >= PULL_TRIES or now - first > PULL_RETRY_SECONDS:
            raise ProviderError(pulls.words or trouble.message, code=trouble.code)

    def _is_scaled_up(self, pods: Pods) -> bool:
        """Whether an autoscaler has said that it adds a node for one of the pods."""
        return any(
            each.get("reason") in SCALE_UP_REASONS
            for pod in pods
            for each in self._list_events(pod["metadata"]["name"])
        )


# -- Pods as requests: their IDs, and what is asked for -------------------------------------------


def make_pod(
    name: str,
    request: LaunchRequest,
    config: MachineConfig,
    tags: Mapping[str, str],
    image: str,
    kinds: Sequence[NodeKind],
) -> JsonObject:
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


def read_tags(pod: JsonMapping) -> Mapping[str, str]:
    """Return what was written on a pod: annotations, as labels may not hold any text."""
    return pod["metadata"].get("annotations") or {}


# -- Nodes of a cluster of Kubernetes as places for pods: what is free on them, and their ---------

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

    def expressions(self) -> list[JsonObject]:
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


def read_kind(node: JsonMapping, wanted: Mapping[str, str]) -> NodeKind | None:
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


def _takes_pods(node: JsonMapping, tolerated: Collection[str]) -> bool:
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


def read_room(node: JsonMapping, pods: Iterable[JsonMapping]) -> Room:
    """Return what of a node its pods leave free.

    Parameters
    ----------
    pods
        Those that run on it, or will.
    """
    from kubernetes.utils import parse_quantity

    def size(amounts: JsonMapping, key: str) -> float:
        return float(parse_quantity(amounts.get(key) or 0))

    taken = [each for pod in pods for each in _requests(pod)]
    free = {
        key: size(node["status"]["allocatable"], key) - sum(size(each, key) for each in taken)
        for key in ("cpu", "memory", GPU)
    }
    return Room(free["cpu"], free["memory"] / _MIB / 1024, int(free[GPU]))


def _requests(pod: JsonMapping) -> Iterator[JsonMapping]:
    """Yield what each container of a pod has been promised."""
    for container in pod["spec"]["containers"]:
        yield (container.get("resources") or {}).get("requests") or {}


def affinity(kinds: Sequence[NodeKind]) -> JsonObject:
    """Return the affinity of a pod that may run on nodes of any of some kinds."""
    terms = [{"matchExpressions": kind.expressions()} for kind in kinds]
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": needed}
