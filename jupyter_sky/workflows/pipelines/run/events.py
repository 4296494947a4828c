"""Events of a run: the rows from which its state is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """Kinds of events; what each is about stands in `Event.subject`.

    Those of the second half are decided by the controller before it acts (`runs.decisions`), the
    others are told by the world or by a user. Those of an attempt carry its number as ``attempt``,
    those of a cluster the ``token`` of its launch: an answer that comes too late changes nothing.
    """

    # of the run
    PLANNED = "planned"
    """A plan was made: ``clusters`` of tasks and ``offers`` of clusters, each with ``slots`` and
    ``usd_h``; ``estimates`` of tasks, ``deadline_at`` and ``budget_usd`` where they are known;
    ``text`` on why it was made anew, what it changes and what that saves."""
    PLAN_KEPT = "plan kept"
    """Another plan was made and gains too little: ``text``."""
    NO_PLAN = "no plan"
    """No plan is possible: ``reason``, and ``tasks`` that cannot run; all unless given."""
    PRICES = "prices"
    """Prices of clusters that are not launched yet: ``usd_h`` by cluster."""
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    FAIL_FAST = "fail fast"
    """The first task that fails for good cancels the run."""
    # of a task
    RESULT_FOUND = "result found"
    """Its result is in the store already."""
    NO_RESULT = "no result"
    """No kept result can be used: ``why``."""
    DECLINED = "declined"
    """Its condition does not hold: ``reason``."""
    MOVED = "moved"
    """Its inputs are where it will run: it is about to be sent."""
    NOT_MOVED = "not moved"
    """They could not be brought there: ``reason``."""
    BEGUN = "begun"
    """An engine has accepted the attempt."""
    SUCCEEDED = "succeeded"
    """Its result is stored: ``hours``, ``usd``, ``gb``, where it lies (``place``, such as
    ``aws/us-east-1``), and ``unkept`` where no later run may use it."""
    FAILED = "failed"
    """Its code raised: ``reason``."""
    LOST = "lost"
    """Its attempt ended with its machine: ``reason``."""
    RETURNED = "returned"
    """Its attempt was sent with others and not begun, as their time was over: it is sent again."""
    STOPPED = "stopped"
    """Its attempt was stopped for a user."""
    # of a cluster
    LAUNCHED = "launched"
    REFUSED = "refused"
    """Its place refused: ``reason``, ``place``, and for how long it is left out
    (``block_seconds``); ``is_final`` where no other place would take it either."""
    CLUSTER_LOST = "cluster lost"
    RELEASED = "released"

    # decided by the controller
    READY = "ready"
    """Its producers have ended well: look for a stored result."""
    SKIPPED = "skipped"
    """A producer did not end well: ``reason``."""
    CLUSTER_WANTED = "cluster wanted"
    """It is about to be launched: ``token``, ``offer``."""
    PLACED = "placed"
    """Its cluster is up and has room: its next attempt begins there, with its inputs; these come
    with it where it is ``without_move``."""
    RETRY_LATER = "retry later"
    """It waits until ``until`` (Unix seconds)."""
    RETRIED = "retried"
    GIVEN_UP = "given up"
    """It is not tried again: ``reason``."""
    CANCELLED = "cancelled"
    DRAINED = "drained"
    """Nothing more will run on the cluster: release it."""
    PLAN_WANTED = "plan wanted"
    """A plan is to be made at ``until`` (Unix seconds), for ``causes``, each with its ``key``."""
    LIMIT_REACHED = "limit reached"
    """The budget is used up: ``reason``. What runs is stopped, nothing more begins."""


REPEATED = frozenset({Kind.READY, Kind.NO_RESULT, Kind.BEGUN, Kind.SUCCEEDED})
"""Kinds that are told again if a power cut takes them back, as nothing outside follows from them.

What ended well is found by its result, which is on the disk before; what was begun by its attempt.
Their rows reach the disk with the next decision, before it is carried out."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run.

    Attributes
    ----------
    kind
        What happened.
    subject
        Name of the task or cluster; empty for the run.
    at
        When, Unix seconds.
    data
        More about it, values of JSON.
    """

    kind: Kind
    subject: str = ""
    at: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)
