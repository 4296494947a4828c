"""An engine's process, for whoever looks after it: the head, or the nurse of another node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import docket
from .guardian import PR_SET_PDEATHSIG, prctl


def begin(path: Path) -> dict[str, Any]:
    """Read the order of who looks after engines, make its folders, and end with its guardian."""
    config = json.loads(path.read_text())
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for name in ("security", "work", "profile"):
        (Path(config["directory"]) / name).mkdir(mode=0o700, exist_ok=True)
    return config


def start_engine(
    directory: Path, config: Path, rank: int, serial: int
) -> tuple[subprocess.Popen, str, int]:
    """Start an engine.

    Returns
    -------
    tuple
        Its process, what tells its descendants by their environment, and where its part of the
        log begins.
    """
    docket.path_of(directory, rank).unlink(missing_ok=True)
    path = directory / f"engine-{rank}.log"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    name, value = "JUPYTER_SKY_ENGINE", f"{directory}:{serial}"
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_sky.engines.engine", config, str(rank)],
            cwd=directory / "work",
            env=os.environ | {name: value},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that a signal reaches what the cell has started, too
        )
        size = os.fstat(log).st_size
    finally:
        os.close(log)
    return process, f"{name}={value}", size


def memory(pid: int, bound: float) -> float:
    """Return the bytes that a process and those below it hold.

    What they share counts once, as long as it matters: to find that out is slow.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0.0
    used = shared = 0.0
    for member in family:
        with suppress(psutil.Error):
            used += member.memory_info().rss
    if used <= bound or len(family) == 1:
        return used
    for member in family:
        with suppress(psutil.Error):
            info = member.memory_full_info()
            shared += getattr(info, "pss", info.uss)
    return shared
