"""Wait for pods until each has a node and its image, as far as their cluster can bring them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from jupyter_sky.clouds.kubernetes.status import (
    PULL_CODES,
    UNSCHEDULABLE,
    find_trouble,
    has_started,
)
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.parallel_requests import pause

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

Pods = Sequence[Mapping[str, Any]]


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


def count_failed_pulls(events: Iterable[Mapping[str, Any]]) -> FailedPulls:
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
        list_events: Callable[[str], Iterable[Mapping[str, Any]]],
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

    def _check(self, pod: Mapping[str, Any], trouble: ProviderError) -> None:
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
