"""Machine keep-alive: a timestamp; once it is stale, a script of root powers the machine off.

A script that belongs to root ends the machine when nobody does: see `jupyter_sky.clouds.cloud_init`.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

RENEW_SECONDS = 2.0


def keepalive_folder() -> Path:
    """Return the folder of the machine's lease; machines of one's own have none."""
    return Path(os.environ.get("JUPYTER_SKY_KEEPALIVE", "/run/jupyter-sky"))


class KeepAlive:
    """The lease of the machine that this process is on.

    Parameters
    ----------
    sign : Path, optional
        A file whose time is a sign of life for other machines that share its folder.
    """

    def __init__(self, heartbeat_file: Path | None = None) -> None:
        self._folder, self._renewed, self._heartbeat_file = keepalive_folder(), 0.0, heartbeat_file

    def renew(self) -> None:
        """Say that this machine is needed; at most every few seconds it is written down."""
        now = time.monotonic()
        if self._renewed and now - self._renewed < RENEW_SECONDS:
            return
        self._renewed = now
        if self._heartbeat_file is not None:
            with suppress(OSError):
                os.utime(self._heartbeat_file)
        if self._folder.is_dir():
            with suppress(OSError):  # a full disk must not end the work: it has minutes yet
                up = Path("/proc/uptime").read_text().partition(".")[0]
                partial = self._folder / "renewed.partial"
                partial.write_text(up)
                partial.replace(self._folder / "renewed")
