"""Sessions of Spark Connect as EMR has them, serverless and on machines."""

from __future__ import annotations

import math
import os
from datetime import datetime
from urllib.parse import urlsplit

from jupyter_sky.base.json_types import JsonMapping
from jupyter_sky.clouds.launches.session_provider import SessionEndpoint
from jupyter_sky.clouds.provider.classification import ProviderError
from jupyter_sky.clouds.provider.values import MachineState

AUTH_HEADER = "x-aws-proxy-auth"
"""Metadata of a request that has the token of a session."""
LIVE_STATES = ("SUBMITTED", "STARTING", "STARTED", "IDLE", "BUSY")
"""States of a session that costs, or is about to."""
IDLE_MARGIN = 60.0
"""A session that ended so soon after its idle time, seconds, has ended for that."""
FAILED = "SessionFailed"
"""Code of the error of a session that failed or ended."""


def session_endpoint(address: str, token: str, expires: float) -> SessionEndpoint:
    """Return where a session is reached.

    Parameters
    ----------
    address
        As EMR writes it, with or without a scheme.
    token
        Opens it.
    expires
        Unix seconds at which the token is no longer accepted.

    Examples
    --------
    >>> session_endpoint("https://s1.emr.us-east-1.amazonaws.com", "t", 0.0).host
    's1.emr.us-east-1.amazonaws.com:443'
    """
    where = urlsplit(address if "//" in address else f"//{address}")
    return SessionEndpoint(
        host=f"{where.hostname}:{where.port or 443}",
        headers={AUTH_HEADER: token},
        expires=expires,
        authority=os.environ.get("AWS_CA_BUNDLE", ""),
    )


def idle_minutes(seconds: float) -> int:
    """Return the whole minutes after which a session that is not used ends.

    Examples
    --------
    >>> idle_minutes(90), idle_minutes(5)
    (2, 1)
    """
    return max(1, math.ceil(seconds / 60))


def end_reason(
    state: str,
    details: str,
    since: datetime | None,
    ended: datetime | None,
    minutes: float | None,
) -> str:
    """Return ``idle`` or in words why a session has ended; empty while it goes on.

    Parameters
    ----------
    state, details
        In the words of EMR.
    since, ended
        When it was used last, and when it ended.
    minutes
        Its idle time.
    """
    if state in LIVE_STATES:
        return ""
    if since and ended and minutes:
        late = (ended - since).total_seconds() - minutes * 60
        if -1.0 <= late < IDLE_MARGIN:
            return "idle"
    return details


def named(answer: JsonMapping, key: str) -> str:
    """Return a name from an answer; botocore takes one that was cut off for an empty one."""
    if key not in answer:
        raise ProviderError("the answer was cut off", code="IncompleteReadError")
    return answer[key]


def session_state(word: str) -> MachineState:
    """Return the state of a session by the word of EMR for it."""
    if word in ("SUBMITTED", "STARTING"):
        return "starting"
    return "running" if word in LIVE_STATES else "ended"
