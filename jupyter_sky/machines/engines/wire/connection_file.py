# pyright: strict
"""Connection files of controllers, validated before use.

A connection file comes from a folder or from another machine. ipyparallel takes the serializer, the
signature scheme and an SSH server from it: ``"unpack": "pickle"`` of an attacker would run
code in whatever process connects. Here these are fixed, and the file gives a key and ports only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyClusterLost
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.wire.narrowing import is_mapping

PORTS = "registration control mux task iopub notification broadcast".split()
REQUIRED_SETTINGS: Mapping[str, Any] = {
    "pack": "json",
    "unpack": "json",
    "signature_scheme": "hmac-sha256",
    "location": None,
    "ssh": "",
}
"""Settings of every connection, whatever a file says."""
LOOPBACK = "tcp://127.0.0.1"


def validate(settings: Any, cluster: str, interface: str = LOOPBACK) -> dict[str, Any]:
    """Return the connection that a controller's file describes, with `REQUIRED_SETTINGS` settings.

    Parameters
    ----------
    settings
        Content of the file, as parsed from JSON.
    cluster
        Name of the cluster, for messages.
    interface
        Address that sockets connect to, ``tcp://127.0.0.1`` or ``ipc://...``. The file's own is
        not used: a controller is reached on this machine or through a tunnel.

    Raises
    ------
    SkyClusterLost
        The file has no key, no valid ports, or names another machine.
    """
    if not is_mapping(settings):
        raise _invalid_error(cluster, "it is not a JSON object")
    key, curve = settings.get("key"), settings.get("curve_serverkey")
    if curve is not None and not (isinstance(curve, str) and re.fullmatch(r"[!-~]{40}|", curve)):
        raise _invalid_error(cluster, "its curve_serverkey is not a key")
    # ipyparallel signs nothing where CURVE encrypts and authenticates, as between nodes
    if not isinstance(key, str) or not (key or curve):
        raise _invalid_error(cluster, "it has no key, and messages must be signed or encrypted")
    if interface == LOOPBACK and settings.get("interface") != LOOPBACK:
        raise _invalid_error(cluster, f"it names the address {settings.get('interface')!r:.80}")
    for name in PORTS:
        port = settings.get(name)
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise _invalid_error(cluster, f"its port {name} is {port!r:.40}")
    ports: dict[str, int] = {name: settings[name] for name in PORTS}
    kept = {"key": key, "curve_serverkey": curve, "task_scheme": "leastload"}
    return {**ports, **kept, **REQUIRED_SETTINGS, "interface": interface}


def read(path: Path, cluster: str) -> dict[str, Any]:
    """Return the connection to a controller on this machine, from its file.

    Raises
    ------
    OSError
        The file cannot be read.
    SkyClusterLost
        It is not a connection file of a controller on this machine.
    """
    try:
        settings = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise _invalid_error(cluster, "it is not JSON") from None
    return validate(settings, cluster)


def _invalid_error(cluster: str, why: str) -> SkyClusterLost:
    return SkyClusterLost(
        _("the connection file of cluster {cluster} is refused: {why}").format(
            cluster=cluster, why=why
        ),
        hint=_("end what is left of it: %sky down {cluster}").format(cluster=cluster),
    )
