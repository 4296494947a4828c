"""Runs carried out by a process of their own, which outlives the notebook that has begun them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.settings.background_process import start_background_process
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.base.settings.settings import Sky

LOGS = "run-logs"
"""Folder of what these processes print, below that of the user's data."""
BEGIN_SECONDS = 60.0
"""Longest wait until the process has taken its run over."""


class Owned(Protocol):
    """Journal that says which process carries each of its runs out."""

    def owner(self, name: str) -> Mapping[str, Any]:
        """Return the process that carries a run out, or was the last to; empty before any."""
        ...


def start_detached(config: Sky, journal: Owned, name: str, verb: str = "pipeline") -> None:
    """Carry a stored run out in a process of its own; return once it has taken the run over.

    The process has the settings and the working folder of this one, and goes on when this one, its
    terminal or its Jupyter server ends.

    Parameters
    ----------
    config
        Settings of the process.
    journal
        With the run.
    name
        Of the run.
    verb
        Whose command ``resume`` carries it out.

    Raises
    ------
    SkyError
        The process has not begun; the message has what it printed.
    """
    log_name = name if verb == "pipeline" else f"{verb}-{name}"
    path = Path(config.data_dir) / LOGS / f"{log_name}.log"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    before = journal.owner(name)
    try:
        arguments = ["-m", "jupyter_sky.cli", verb, "resume", name]
        process = start_background_process(arguments, config, log)
    finally:
        os.close(log)
    deadline = time.monotonic() + BEGIN_SECONDS
    while journal.owner(name) == before:
        if process.poll() is not None or time.monotonic() > deadline:
            printed = path.read_text(errors="replace").strip()[-2000:]
            raise SkyError(
                _("the process of run {name} has not begun: {printed}").format(
                    name=name, printed=printed or _("it printed nothing")
                ),
                hint=_("carry it out here: %sky {verb} resume {name}").format(verb=verb, name=name),
            )
        time.sleep(0.05)
