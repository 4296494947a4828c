"""Engine process (``python -m``): an ipyparallel engine with `SkyKernel`, within its limits.

python -m jupyter_sky.machines.engines.node.engine CONFIG.json RANK
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from jupyter_sky.base.remote.supervisor import PR_SET_PDEATHSIG, prctl
from jupyter_sky.machines.engines.node.instance import InstanceInfo
from jupyter_sky.machines.engines.node.lazy_imports import blocked_import, gc_disabled, make_lazy
from jupyter_sky.machines.engines.wire.messages import ClusterConfig

CONNECTION_FILE_SECONDS = 60.0
"""Time that an engine waits for the address of its controller."""


def apply_limits(cpus: list[int] | None, memory_gib: float | None) -> None:
    """Bound this process and its children to `cpus` and to `memory_gib` of data.

    The memory bound makes an allocation past it a MemoryError in the cell, not a kill of the
    machine; the controller enforces the same bound over the engine and its children together.
    """
    if cpus and hasattr(os, "sched_setaffinity"):
        there = set(cpus) & os.sched_getaffinity(0)  # a machine may have fewer than is said
        if there:
            os.sched_setaffinity(0, there)
    if memory_gib:
        import resource

        bound = int(memory_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def exit_with_parent(parent: int) -> None:
    """End this process when its parent ends, whatever the cell is doing."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, name="sky-parent", daemon=True).start()


def choose_temporary_directory() -> None:
    """Choose the folder of temporary files now, so that cells still run once the disk is full.

    ipykernel names the code of a cell after that folder; Python looks for one by writing to it.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:  # full already: files fail with the words of the system
        tempfile.tempdir = os.environ.get("TMPDIR") or "/tmp"


def import_dependencies() -> None:
    """Import the dependencies of an engine, in its own process or in the one it is forked from."""
    make_lazy("ipyparallel")
    with gc_disabled():
        with blocked_import("debugpy"):  # engines have no breakpoints
            import ipykernel.debugger  # noqa: F401 (looks now, and the kernel would later)
        import ipyparallel.engine.app  # noqa: F401 (see `main`)

        from jupyter_sky.machines.engines.node import current_cell, kernel, streams  # noqa: F401 (see `main`)


def main(argv: list[str]) -> None:
    """Start the engine of one rank."""
    config: ClusterConfig = json.loads(Path(argv[0]).read_text())
    rank = int(argv[1])
    exit_with_parent(os.getppid())
    os.environ.update(InstanceInfo.of_engine(config, rank).variables())
    cpus = config.get("cpus")
    apply_limits(cpus[rank] if cpus else None, config.get("memory"))
    choose_temporary_directory()

    import_dependencies()
    from ipyparallel.engine import app as engine_app

    from jupyter_sky.machines.engines.node.current_cell import CurrentCellFile, cell_file_path
    from jupyter_sky.machines.engines.node.kernel import SkyKernel
    from jupyter_sky.machines.engines.node.streams import OutputPublisher

    directory = Path(config["directory"])
    if config.get("keeps_environment"):
        from jupyter_sky.machines.engines.node.overlay import FOLDER, PackageOverlay

        SkyKernel.overlay = PackageOverlay(directory / FOLDER)
        SkyKernel.overlay.activate()
    # ipyparallel names these classes in this module only; there are no traits for them.
    engine_app.Kernel = SkyKernel  # type: ignore[misc]
    engine_app.IOPubThread = OutputPublisher  # type: ignore[misc]
    met = directory / "security" / "engine.json"
    _await_file(met, CONNECTION_FILE_SECONDS)
    SkyKernel.cell_file = CurrentCellFile(cell_file_path(directory, rank))
    # as in a notebook's kernel, forked processes can be ended and what they print is shown
    os.register_at_fork(after_in_child=partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
    engine_app.IPEngine.launch_instance(
        argv=[
            f"--IPEngine.url_file={met}",
            f"--IPEngine.id={rank}",
            "--IPEngine.enable_nanny=False",
            "--IPEngine.out_stream_factory=jupyter_sky.machines.engines.node.streams.BoundedOutStream",
            "--IPEngine.timeout=60",
            f"--IPEngine.work_dir={directory / 'work'}",
            f"--ProfileDir.location={directory / 'profile'}",
            "--HistoryManager.enabled=False",
            "--IPEngine.log_level=30",
        ]
    )


def _await_file(path: Path, seconds: float) -> None:
    """Wait for a file; ipyparallel says what is wrong where it does not come."""
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1:])
