"""Connections of the tunnel client that end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from jupyter_sky.machines.engines.client.tunnel import Tunnel
from tests.conftest import wait_until


def test_a_process_that_keeps_the_pipes_does_not_hold_up_the_next_try(tmp_path: Path) -> None:
    """A helper of SSH may outlive it."""
    helpers = tmp_path / "helpers"
    script = f"sleep 600 </dev/null >/dev/null & echo $! >>{helpers}; exit 1"
    tunnel = Tunnel("train", ["sh", "-c", script])
    try:
        wait_until(lambda: tunnel.disconnect_count >= 2, "it is tried again")
        assert tunnel.down_reason == "the connection was cut"
    finally:
        tunnel.close()
        for pid in helpers.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
