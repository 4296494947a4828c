"""The provisioner makes a plan real: it launches machines and starts the controller on them.

Everything that can be launched can be given back: an interrupt or an error on the way takes down
what has come up so far.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jupyter_sky import clouds
from jupyter_sky.base.clouds.index import MANAGED
from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import (
    SkyCancelled,
    SkyClusterLost,
    SkyError,
    SkyNoCapacity,
    SkyPreempted,
    SkyStoreError,
    SkyUnreachable,
    SkyUsageError,
)
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.translation import _
from jupyter_sky.clouds import Cloud, LaunchRequest, Machine
from jupyter_sky.clouds.launches.base import SshAccessibleCloud, is_reached_by_ssh
from jupyter_sky.clouds.launches.launch_records import translate_disk_errors
from jupyter_sky.clouds.local import LocalCloud, LocalHost
from jupyter_sky.knowledge import tracker
from jupyter_sky.knowledge.tracker import Place
from jupyter_sky.machines.provisioner.interrupts import (
    AllowedInterrupts,
    HeldInterrupts,
    uninterruptible,
)
from jupyter_sky.machines.provisioner.launch_stages import LaunchStages
from jupyter_sky.machines.provisioner.package_archive import prebuild
from jupyter_sky.machines.provisioner.ssh_launch import STAGES, start_cluster

START_SECONDS = 120.0

_CAUSES: dict[type[SkyError], str] = {
    SkyNoCapacity: "capacity",
    SkyClusterLost: "transient",
    SkyUnreachable: "transient",
}
"""Causes of failed launches that tell something about their place."""

Report = Callable[[str, str], None]
"""Called with a stage and a detail, again and again while waiting."""
OnLaunched = Callable[[list[Machine]], None]
"""Called with machines as soon as there are any: from then on they cost."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Machines that are up, and where their controller can be reached."""

    request: LaunchRequest
    machines: tuple[Machine, ...]
    connection: Path


def provision(
    request: LaunchRequest, report: Report, launched: OnLaunched = lambda __: None
) -> Lease:
    """Launch the machines of a request, start the controller there, wait for its controller.

    The tracker is told how it went, and a place that it knows to be blocked is not asked.

    Parameters
    ----------
    request
        What to launch; its offer says where.
    report
        Called about ten times a second while waiting.
    launched
        Called with the machines once the cloud has accepted them all.

    Raises
    ------
    SkyNoCapacity
        The place refuses, or did so lately.
    SkyClusterLost
        Machines came up, but no controller on them. They have been terminated.
    SkyUsageError
        Nothing here can launch such an offer.
    """
    if why := clouds.launch_obstacle(request.offer):
        raise SkyUsageError(f"{request.offer.place}: {why}")
    _check_not_blocked(request.offer)
    try:
        with translate_disk_errors():
            return _bring_up(request, report, launched)
    except tuple(_CAUSES) as error:
        record_observation(
            "refused", refusal_scope(request.offer, error), cause=cause_of(error), why=error.message
        )
        raise


def resume(request: LaunchRequest, report: Report) -> Lease:
    """Start the machines of a request that were stopped, and a new controller on them.

    Parameters
    ----------
    request
        By which they were launched.
    report
        Called about ten times a second while waiting.

    Raises
    ------
    SkyNoCapacity
        The place has none of them now.
    SkyClusterLost
        They have started, but no controller on them. They stay up: the caller stops them.
    """
    provider, since = clouds.get_launcher(clouds.launcher_name(request.offer)), time.time()
    with translate_disk_errors(), AllowedInterrupts():
        machines = provider.start(request.token, lambda __: report("booting", ""))
        connection = _start_controller(provider, request, machines, report, since)
    return Lease(request, tuple(machines), connection)


def cause_of(error: SkyError) -> str:
    """Return the cause of a failure at its place: ``capacity``, ``quota`` or ``transient``."""
    if isinstance(error, SkyNoCapacity):
        return error.cause
    return next((cause for kind, cause in _CAUSES.items() if isinstance(error, kind)), "capacity")


def refusal_scope(offer: Offer, error: SkyError) -> Place:
    """Return the scope around an offer that a failure is about.

    Examples
    --------
    >>> offer = Offer("aws", "us-east-1", "g5.xlarge", 4, 16, zone="us-east-1a", spot=True)
    >>> error = SkyNoCapacity("no more spot machines")
    >>> error.scope = "market"
    >>> str(refusal_scope(offer, error))
    'aws us-east-1 spot'
    """
    place, width = Place.of(offer), getattr(error, "scope", "zone")
    if width == "zone":
        return place
    kind = "" if width == "market" else place.instance_type
    return replace(place, zone="", instance_type=kind)


def _check_not_blocked(offer: Offer) -> None:
    """Raise SkyNoCapacity, with the reason, for a place that is blocked now."""
    block = None
    with contextlib.suppress(SkyStoreError):  # a launch goes on without the tracker
        block = tracker.block(offer)
    if block is not None:
        left = format_duration(max(1.0, block.until - time.time()))
        cause = "it failed" if block.cause == "transient" else f"{block.scope}: no {block.cause}"
        raise SkyNoCapacity(
            _("{place} is skipped for another {left}: {cause} ({why})").format(
                place=offer.place, left=left, cause=cause, why=block.why
            ),
            hint=_("to ask there all the same: %sky tracker clear"),
        )


def record_observation(kind: str, where: Offer | Place, **seen: Any) -> None:
    """Record an observation for the tracker; a launch never fails for the sake of a record."""
    with contextlib.suppress(SkyStoreError):
        tracker.observe(kind, where, **seen)


def _bring_up(request: LaunchRequest, report: Report, launched: OnLaunched) -> Lease:
    cloud, begun = clouds.get(clouds.launcher_name(request.offer)), time.monotonic()
    since = time.time()
    machines: list[Machine] = []

    stop = threading.Event()

    def tick() -> None:
        if stop.is_set():
            raise SkyCancelled(_("it was interrupted"))

    def launch() -> None:
        machines.extend(cloud.launch(request, tick))
        launched(machines)

    if is_reached_by_ssh(cloud):
        prebuild()  # while they boot
    with HeldInterrupts():
        try:
            with AllowedInterrupts():
                uninterruptible(launch, lambda: report("booting", ""), stop)
                connection = _start_controller(cloud, request, machines, report, since)
            seconds = time.monotonic() - begun
            record_observation("launched", request.offer, seconds=seconds)
            return Lease(request, tuple(machines), connection)
        except BaseException as error:
            if machines and isinstance(error, SkyError):
                error.machines_came_up = True
            with HeldInterrupts():
                cloud.terminate([machine.id for machine in machines])
            raise


def _start_controller(
    cloud: Cloud, request: LaunchRequest, machines: list[Machine], report: Report, since: float
) -> Path:
    """Start the controller on machines; return its connection file."""
    is_session = cloud.name in MANAGED
    config = {
        "cluster": request.cluster,
        "nodes": request.resources.nodes if is_session else len(machines),
        "idle": request.idle,
        "gpus": [request.offer.gpu or "", request.offer.gpu_count],
        "notice_service": _notice_service(request.offer),
    }
    if is_session:
        return _start_beside_session(cloud, request, machines, config, report)
    if is_reached_by_ssh(cloud):
        return _start_over_ssh(cloud, machines, config, report, since)
    assert isinstance(cloud, LocalCloud)
    return _start_locally(cloud, cloud.host(machines), machines, config, report)


def _notice_service(offer: Offer) -> str:
    """Return the reader of notices for machines of an offer; empty where there are none."""
    return find_facts(offer.cloud).notice_service if offer.spot else ""


def _start_over_ssh(
    cloud: SshAccessibleCloud,
    machines: list[Machine],
    config: dict[str, Any],
    report: Report,
    since: float,
) -> Path:
    """Start the controller on machines reached by SSH; return its connection file."""
    folder = cloud.cluster_folder(machines)
    stages = LaunchStages(folder / STAGES)
    stages.record("machines", since)
    nodes = cloud.await_slots(machines, stages.report_callback(report))
    return start_cluster(nodes, config | cloud.limits(machines), folder, report, stages)


def _start_beside_session(
    cloud: Cloud,
    request: LaunchRequest,
    machines: list[Machine],
    config: dict[str, Any],
    report: Report,
) -> Path:
    """Start the controller on this machine once a session can be used."""
    from jupyter_sky.machines.services.service_cloud import ServiceCloud

    assert isinstance(cloud, ServiceCloud)
    cloud.start_keeper(machines)
    cloud.await_ready(request, machines, lambda __: report("booting", request.offer.service or ""))
    # its engine is the client of the session: one, whatever the size of the session is
    config = config | {"nodes": 1, "gpus": ["", 0]}
    path = _start_locally(cloud, cloud.host(machines), machines, config, report)
    cloud.note_started(machines)
    return path


def _start_locally(
    cloud: Cloud,
    host: LocalHost,
    machines: list[Machine],
    config: dict[str, Any],
    report: Report,
) -> Path:
    """Start the controller on this machine; return its connection file."""
    with HeldInterrupts():
        host.start("jupyter_sky.machines.engines.controller", config | host.limits)

    def alive() -> None:
        report("booting", "")
        check_alive(cloud, machines, config["cluster"])

    return host.await_connection(START_SECONDS, alive)


def check_alive(cloud: Cloud, machines: list[Machine], cluster: str) -> None:
    """Raise SkyClusterLost, with the reason, when a machine has ended."""
    for machine in cloud.describe([machine.id for machine in machines]):
        if machine.state == "ended":
            why = machine.reason or "its machine has ended"
            kind = SkyPreempted if machine.preempted else SkyClusterLost
            raise kind(f"cluster {cluster} is gone: {why}")
