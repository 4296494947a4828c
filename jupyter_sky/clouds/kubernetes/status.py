"""Reading of a pod's status: whether it runs, why it does not, and what has ended it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.values import MachineState

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


def parse_state(pod: Mapping[str, Any]) -> PodState:
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


def _is_tried_again(trouble: ProviderError, status: Mapping[str, Any]) -> bool:
    """Whether a pull may still succeed; of a pod that does not say its begin, the first alone."""
    if trouble.code not in PULL_CODES:
        return False
    begun = status.get("startTime")
    if not begun:
        return trouble.code == PULL_CODES[0]
    return time.time() - datetime.fromisoformat(begun).timestamp() < PULL_END_SECONDS


def _parse_end(status: Mapping[str, Any]) -> PodState:
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


def find_trouble(pod: Mapping[str, Any]) -> ProviderError | None:
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


def has_started(pod: Mapping[str, Any]) -> bool:
    """Whether the container of a pod runs, or has run."""
    return pod["status"].get("phase") not in (None, "Pending")


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    every = status.get("conditions") or ()
    return next((each for each in every if each["type"] == kind), {})


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter(status.get("containerStatuses") or ()), {})
