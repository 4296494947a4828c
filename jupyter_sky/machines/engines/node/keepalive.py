"""Machine keep-alive: a timestamp that is renewed every 2 s.

A root-owned script powers the machine off once it is stale: see `clouds.launches.cloud_init`.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

RENEW_SECONDS = 2.0


def keepalive_folder() -> Path:
    """Return the folder of the machine's keep-alive; on-premises machines have none."""
    return Path(os.environ.get("JUPYTER_SKY_KEEPALIVE", "/run/jupyter-sky"))


class KeepAlive:
    """Keep-alive of the machine that this process runs on.

    Parameters
    ----------
    heartbeat_file : Path, optional
        A file whose time tells other machines that share its folder that this one is alive.
    """

    def __init__(self, heartbeat_file: Path | None = None) -> None:
        self._folder, self._renewed, self._heartbeat_file = keepalive_folder(), 0.0, heartbeat_file

    def renew(self) -> None:
        """Renew the timestamp, at most once in `RENEW_SECONDS`."""
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
