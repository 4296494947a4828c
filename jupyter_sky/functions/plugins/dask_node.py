"""Dask's scheduler and workers on a node (``python -m``): child processes of the engine.

python -m jupyter_sky.functions.plugins.dask_node < SPEC
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from typing import Any

from ...engines.controller.agent_server import listen_address
from ...engines.node.instance import instance_info
from ...errors import SkyError
from ...translation import _

_running: list[subprocess.Popen[bytes]] = []
_removals: dict[str, list[threading.Thread]] = {}
"""Threads that remove the folders of workers once these have ended, by the scheduler's address."""
REMOVAL_SECONDS = 8.0


def start_scheduler(secrets: dict[str, str]) -> tuple[str, int, int]:
    """Start the scheduler here; return its address, its port and that of its dashboard."""
    head = instance_info().head_addr
    hosts = list(dict.fromkeys((listen_address(head), "127.0.0.1")))
    report = _start_process({"role": "scheduler", "hosts": hosts, **secrets})
    first, *__, last = [*report["ports"], *report["ports"]]
    return f"tls://{head}:{first}", last, report["dashboard"]


def start_worker(address: str, secrets: dict[str, str]) -> str:
    """Start a worker here; return its address."""
    info = instance_info()
    config: dict[str, Any] = {"role": "worker", "scheduler": address, "name": f"node-{info.node}"}
    hosts = [info.peers[info.node].private_ip]
    config["share"] = sum(peer.private_ip == hosts[0] for peer in info.peers)
    # in the folder of the cluster, which is removed with it whatever happens to its processes
    config["folder"] = tempfile.mkdtemp(prefix="sky-dask-", dir=os.getcwd())
    return _start_process({**config, "hosts": hosts, **secrets})["address"]


def await_removal(address: str) -> None:
    """Wait some seconds for the removal of the folders of a scheduler's workers on this node."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    for thread in _removals.pop(address, ()):
        thread.join(max(deadline - time.monotonic(), 0.0))


def _start_process(config: dict[str, Any]) -> dict[str, Any]:
    """Start a scheduler or a worker process; return the address that it reports."""
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyter_sky.functions.plugins.dask_node"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # an interrupt is for calls, not for it
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    _running.append(process)
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(config).encode() + b"\n")
    process.stdin.flush()  # and left open: its end is the end of the process
    lines: list[str] = []
    for line in process.stdout:
        if line.startswith(_READY):
            drain = _drain(process, config.get("folder"))
            if "folder" in config:
                _removals.setdefault(config["scheduler"], []).append(drain)
            return json.loads(line[len(_READY) :])
        lines.append(line.decode(errors="replace").rstrip())
    _remove(config.get("folder"))
    last = "\n".join(lines[-8:])
    hint = _('have it installed: Image(pip=["dask[distributed]"])') if "No module" in last else None
    raise SkyError(
        _("dask's {config} does not start on node {node}:\n{last}").format(
            config=config["role"], node=instance_info().node, last=last
        ),
        hint=hint,
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

    from distributed import Scheduler, Security, Worker

    security = Security(
        require_encryption=True,
        tls_ca_file=config["ca"],
        **{f"tls_{role}_cert": config["certificate"] for role in ("client", "scheduler", "worker")},
        **{f"tls_{role}_key": config["key"] for role in ("client", "scheduler", "worker")},
    )
    common = {"host": config["hosts"], "protocol": "tls", "security": security}
    if config["role"] == "scheduler":
        from .dashboard_login import require_token

        node: Any = Scheduler(port=0, dashboard_address="127.0.0.1:0", **common)
        if node.services:
            require_token(node.services["dashboard"], config["token"])
    else:
        common["host"] = config["hosts"][0]
        common |= worker_share(config["share"])
        common["local_directory"] = config["folder"]
        stack.callback(_remove, config["folder"])  # the engine that has made it may be gone
        node = Worker(config["scheduler"], name=config["name"], dashboard=False, **common)
    async with node:
        ports = [int(listener.contact_address.rpartition(":")[2]) for listener in node.listeners]
        report = {"address": node.address, "ports": ports}
        if config["role"] == "scheduler":
            report["dashboard"] = node.services["dashboard"].port if node.services else 0
        print(_READY.decode() + json.dumps(report), flush=True)
        loop = asyncio.get_running_loop()
        threading.Thread(target=_end_with_stdin, args=(node, loop), daemon=True).start()
        await node.finished()


def _end_with_stdin(node: Any, loop: Any) -> None:
    """End this process with the engine that has started it."""
    while os.read(0, 1):  # not by sys.stdin, whose lock the end of the interpreter needs
        pass
    loop.call_soon_threadsafe(lambda: loop.create_task(node.close()))


def main() -> None:
    """Run a scheduler or a worker."""
    import asyncio

    asyncio.run(_serve(json.loads(sys.stdin.buffer.readline())))


if __name__ == "__main__":
    main()
