"""Notices that this machine will be taken away, as the work on it can ask for them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from ..engines.node.notices import NOTICES_FILE, NoticeKind
from ..remote.supervisor import ENGINE_VARIABLE


def leaving() -> float | None:
    """Return the seconds until this machine is taken away; None without a notice.

    Returns
    -------
    float or None
        0 where the cloud does not tell when.

    Examples
    --------
    >>> leaving() is None
    True
    """
    folder = os.environ.get(ENGINE_VARIABLE, "").rpartition(":")[0]
    if not folder:
        return None
    try:
        notices = json.loads(Path(folder, NOTICES_FILE).read_text())["notices"]
    except (OSError, ValueError, KeyError):  # there is none
        return None
    ends = [each["ends"] for each in notices if each["kind"] == NoticeKind.PREEMPT.value]
    if not ends:
        return None
    return max(0.0, min(end if end is not None else 0.0 for end in ends) - time.time())
