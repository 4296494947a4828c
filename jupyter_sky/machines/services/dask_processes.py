"""Dask's scheduler and workers on a node (``python -m``): child processes of those that start them.

    python -m jupyter_sky.machines.services.dask_processes < SPEC

Pools start them below their engines, clusters with ``--engine dask`` below their controller and
their node agents. Whoever lacks the certificate of the cluster or pool is refused.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from importlib.metadata import version
from typing import Any, NamedTuple

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _

_removals: dict[str, list[tuple[threading.Thread, subprocess.Popen[bytes]]]] = {}
"""Workers with threads that then remove their folders, by the scheduler's address."""
REMOVAL_SECONDS = 8.0
CERTIFICATE_YEARS = 2020, 2120
"""All nodes make the same certificate: nothing in it depends on when and where it is made."""


class DaskProcess(NamedTuple):
    """Scheduler or worker that is ready, and what it has told: address, ports, versions."""

    process: subprocess.Popen[bytes]
    report: dict[str, Any]


def start_dask(
    config: dict[str, Any], node: int, python: str = sys.executable, packages: str = ""
) -> DaskProcess:
    """Start a scheduler or a worker.

    Parameters
    ----------
    config
        Its ``role``, the ``hosts`` that it listens on, its certificate or the ``secret`` that all
        make it of, and what its role needs beside.
    node
        Rank of this node, for messages.
    python, packages
        Interpreter, and a folder of packages to import from first.

    Raises
    ------
    SkyError
        It does not start; has its last lines.
    """
    process = subprocess.Popen(
        [python, "-m", "jupyter_sky.machines.services.dask_processes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # an interrupt is for calls, not for it
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (packages, *sys.path)))},
    )
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(config).encode() + b"\n")
    process.stdin.flush()  # and left open: its end is the end of the process
    lines: list[str] = []
    for line in process.stdout:
        if line.startswith(_READY):
            drain = _drain(process, config.get("folder"))
            if "folder" in config:
                _removals.setdefault(config["scheduler"], []).append((drain, process))
            return DaskProcess(process, json.loads(line[len(_READY) :]))
        lines.append(line.decode(errors="replace").rstrip())
    _remove(config.get("folder"))
    last = "\n".join(lines[-8:])
    hint = _('have it installed: Image(pip=["dask[distributed]"])') if "No module" in last else None
    raise SkyError(
        _("dask's {config} does not start on node {node}:\n{last}").format(
            config=config["role"], node=node, last=last
        ),
        hint=hint,
    )


def await_removal(address: str) -> None:
    """Wait for the removal of the folders of a scheduler's workers on this node.

    Workers that have not ended within some seconds, such as those that still run tasks, are killed.
    """
    deadline = time.monotonic() + REMOVAL_SECONDS
    for drain, process in _removals.pop(address, ()):
        drain.join(max(deadline - time.monotonic(), 0.0))
        if drain.is_alive():
            process.kill()
            drain.join(REMOVAL_SECONDS)


def make_certificate(secret: str) -> dict[str, str]:
    """Return the certificate of a cluster and its key, as PEM; the same for the same secret.

    Parameters
    ----------
    secret
        32 bytes as hexadecimal digits, which are the key.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jupyter-sky-dask")])
    begin, end = (datetime(year, 1, 1) for year in CERTIFICATE_YEARS)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, end)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = made.sign(key, None).public_bytes(Encoding.PEM).decode()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return {"ca": certificate, "certificate": certificate, "key": pem}


def make_security(config: Mapping[str, str]) -> Any:
    """Return what proves a process of Dask to the others, who have the same ``secret``.

    Parameters
    ----------
    config
        Has the ``secret``, or a certificate as `make_certificate` returns it.

    Returns
    -------
    distributed.Security
        With encryption required.
    """
    from distributed import Security

    made = make_certificate(config["secret"]) if "secret" in config else config
    return Security(
        require_encryption=True,
        tls_ca_file=made["ca"],
        **{f"tls_{role}_cert": made["certificate"] for role in ("client", "scheduler", "worker")},
        **{f"tls_{role}_key": made["key"] for role in ("client", "scheduler", "worker")},
    )


_READY = b"ready "


def _drain(process: subprocess.Popen[bytes], folder: str | None) -> threading.Thread:
    """Drain the output pipe, which would otherwise fill and block the process.

    Parameters
    ----------
    folder
        Folder that is removed once the process has ended: one that is killed leaves it.

    Returns
    -------
    threading.Thread
        Thread that does so; it ends when the folder is removed.
    """
    assert process.stdout is not None
    stdout = process.stdout

    def read() -> None:
        while stdout.read(1):
            pass
        _remove(folder)

    thread = threading.Thread(target=read, name="sky-dask-output", daemon=True)
    thread.start()
    return thread


def _remove(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def worker_share(nodes: int) -> dict[str, int]:
    """Return threads and memory (bytes) of a worker that shares its machine.

    An engine that was given CPUs or memory of its own has them to itself.

    Parameters
    ----------
    nodes
        Nodes of the pool on this machine.
    """
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    own_cpus = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) < (
        os.cpu_count() or 1
    )
    bound, __ = resource.getrlimit(resource.RLIMIT_DATA)
    has_own_memory = bound != resource.RLIM_INFINITY
    return {
        "nthreads": CPU_COUNT if own_cpus else max(CPU_COUNT // nodes, 1),
        "memory_limit": min(bound, MEMORY_LIMIT) if has_own_memory else MEMORY_LIMIT // nodes,
    }


async def _serve(config: dict[str, Any]) -> None:
    with ExitStack() as stack:
        await _serve_node(config, stack)


async def _serve_node(config: dict[str, Any], stack: ExitStack) -> None:
    import asyncio

    from distributed import Scheduler, Worker

    common = {"host": config["hosts"], "protocol": "tls", "security": make_security(config)}
    if config["role"] == "scheduler":
        from jupyter_sky.machines.services.dashboard_login import require_token

        port, page = config.get("port", 0), "127.0.0.1:0"
        node: Any = Scheduler(port=port, dashboard_address=page, **common)
        if node.services:
            link = "client.dashboard_link"
            require_token(node.services["dashboard"], config["token"], link)
    else:
        common["host"] = config["hosts"][0]
        common |= config.get("size") or worker_share(config["share"])
        common["local_directory"] = config["folder"]
        stack.callback(_remove, config["folder"])  # the engine that has made it may be gone
        node = Worker(config["scheduler"], name=config["name"], dashboard=False, **common)
    async with node:
        ports = [int(listener.contact_address.rpartition(":")[2]) for listener in node.listeners]
        report = {"address": node.address, "ports": ports, "version": version("distributed")}
        if config["role"] == "scheduler":
            report["dashboard"] = node.services["dashboard"].port if node.services else 0
        print(_READY.decode() + json.dumps(report), flush=True)
        loop = asyncio.get_running_loop()
        threading.Thread(target=_end_with_stdin, args=(node, loop), daemon=True).start()
        await node.finished()


def _end_with_stdin(node: Any, loop: Any) -> None:
    """End this process with the one that has started it."""
    while os.read(0, 1):  # not by sys.stdin, whose lock the end of the interpreter needs
        pass
    loop.call_soon_threadsafe(lambda: loop.create_task(node.close()))


def main() -> None:
    """Run a scheduler or a worker."""
    import asyncio

    asyncio.run(_serve(json.loads(sys.stdin.buffer.readline())))


if __name__ == "__main__":
    main()
