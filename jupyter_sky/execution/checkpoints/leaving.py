"""Notices that this machine will be taken away, as the work on it can ask for them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from jupyter_sky.base.remote.supervisor import ENGINE_VARIABLE
from jupyter_sky.machines.engines.node.notices import NOTICES_FILE, TERMS, NoticeKind, NoticeTerms


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
    notices = _read_file().get("notices", ())
    ends = [each["ends"] for each in notices if each["kind"] == NoticeKind.PREEMPT.value]
    if not ends:
        return None
    return max(0.0, min(end if end is not None else 0.0 for end in ends) - time.time())


def notice_terms() -> NoticeTerms:
    """Return how often, and how early, this machine is told that it will be taken away.

    Examples
    --------
    >>> notice_terms()
    NoticeTerms(share=0.0, seconds=0.0)
    """
    return TERMS.get(_read_file().get("service", ""), NoticeTerms(0.0, 0.0))


def _read_file() -> dict[str, Any]:
    """Return what the watch of this machine has written; nothing where there is none."""
    folder = os.environ.get(ENGINE_VARIABLE, "").rpartition(":")[0]
    if not folder:
        return {}
    try:
        return json.loads(Path(folder, NOTICES_FILE).read_text())
    except (OSError, ValueError):
        return {}
