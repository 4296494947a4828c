"""Own Spark: its start, what a cell adds to a query, its interrupt, its memory, what is left of it.

- `spark_ready_s`: first `spark.range(1).count()` of a new cluster of two nodes, over a first cell
  without Spark; seconds. Spark has been installed before, and its classes archived, as on a machine
  on which Spark has been up for some minutes; `spark_first_ready_s` is the same without an archive.
- `spark_ready_over_submit`: the same of one node, over a bare Connect server that `spark-submit`
  starts and the same query of a plain client, in turns.
- `cell_overhead_ms`: a cell with a query, over the same call measured inside the engine.
- `interrupt_s`: from the interrupt of a cell with a long query to the end of the cell.
- `head_idle_gb`: memory of master, worker, Connect server and their parent on an idle head node of
  two; what is shared counts by its share.
- `single_idle_gb`: the same of a cluster of one node.
- `groupby_over_local_pandas`: own Spark on two nodes of 3 GiB over pandas file by file, for a
  group-by of 20 GB of Parquet; `groupby_spark_s`, `groupby_dask_s`, and `groupby_polars_s` where
  Polars is installed, are the seconds of the same, see `services_groupby`.
- `left_behind`: processes left of 20 launches of own Spark of which a process is killed on the way;
  and sessions, clusters, applications, schedules and processes left of 80 launches of managed
  services that meet faults, see `services_faults`.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

import psutil
from notebook_client import Kernel, processes
from services_faults import left_of_launches
from services_groupby import groupby

from jupyter_sky.machines.engines.node.ports import free_port
from jupyter_sky.machines.services.class_archive import archive_path
from jupyter_sky.machines.services.spark_node import CONNECT_SERVER, ensure_java, ensure_spark

LOAD = "%load_ext jupyter_sky"
ONE, TWO = "--cpus 2 --memory 4", "--nodes 2 --cpus 1 --memory 3"
QUERY = "spark.range(1).count()"
SLOW = """%%sky -c bench
import time
from pyspark.sql.functions import udf
print("begun", flush=True)
spark.range(0, 1000, 1, 8).select(udf(lambda x: time.sleep(9) or x, "long")("id")).collect()
"""
STARTUP_SECONDS = 600.0


def say(text: str) -> None:
    print(text, flush=True)


def first_cell(line: str, code: str) -> float:
    """Return the seconds of the first cell of a new cluster."""
    with Kernel() as kernel:
        kernel.run(LOAD)
        seconds = kernel.run(f"%%sky -c bench {line}\n{code}", STARTUP_SECONDS).seconds
        kernel.run("%sky down all")
    return seconds


def bare_start(home: Path) -> float:
    """Return the seconds in which a bare Connect server starts and answers its first query."""
    from pyspark.sql import SparkSession

    port, begun = free_port("127.0.0.1"), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            home / "bin" / "spark-submit",
            "--master",
            "local[2]",
            "--driver-memory",
            "2150m",
        ]
        settings = [
            *("--conf", f"spark.connect.grpc.binding.port={port}"),
            *("--conf", "spark.ui.enabled=false"),
        ]
        with open(Path(folder) / "log", "wb") as log:
            server = subprocess.Popen(
                [*command, *settings, "--class", CONNECT_SERVER, "spark-internal"],
                env=os.environ | {"JAVA_HOME": str(ensure_java()), "SPARK_HOME": str(home)},
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        try:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            session = SparkSession.builder.remote(f"sc://localhost:{port}").create()
            session.range(1).count()
            seconds = time.monotonic() - begun
            session.stop()
        finally:
            server.kill()
            server.wait()
    return seconds


def archive_classes(archive: Path) -> None:
    """Have a cluster of two nodes up until it has made the archive of Spark's classes."""
    with Kernel() as kernel:
        kernel.run(LOAD)
        kernel.run(f"%%sky -c bench {TWO} --engine spark\n{QUERY}", STARTUP_SECONDS)
        deadline = time.monotonic() + STARTUP_SECONDS
        while not archive.exists() and time.monotonic() < deadline:
            kernel.run(f"%%sky -c bench --engine spark\n{QUERY}")
            time.sleep(1.0)
        kernel.run("%sky down all")


def starts(quick: bool) -> dict:
    home, rounds = ensure_spark(version("pyspark-client")), 1 if quick else 5
    plain, two, one, bare, first = [], [], [], [], []
    archive = archive_path(ensure_java(), home)
    for _ in range(rounds):
        archive.unlink(missing_ok=True)
        first.append(first_cell(f"{TWO} --engine spark", QUERY))
    if not quick:
        archive_classes(archive)
    for _ in range(rounds):
        plain.append(first_cell(TWO, "1"))
        two.append(first_cell(f"{TWO} --engine spark", QUERY))
        bare.append(bare_start(home))
        one.append(first_cell(f"{ONE} --engine spark", QUERY) - first_cell(ONE, "1"))
        say(
            f"start: plain {plain[-1]:.1f} s, two nodes {two[-1]:.1f} s, one {one[-1]:.1f} s, "
            f"spark-submit {bare[-1]:.1f} s"
        )
    return {
        "spark_first_ready_s": median(first) - median(plain),
        "spark_ready_s": median(two) - median(plain),
        "spark_ready_over_submit": median(one) / median(bare),
    }


def memory_gb(folder: Path, pattern: str) -> float:
    """Return the memory of Spark's processes of the nodes whose folders match, in GB."""
    total = 0
    for process in processes(folder):
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            if pattern in process.cwd() and "CoarseGrainedExecutorBackend" not in words:
                total += process.memory_full_info().pss
    return total / 1e9


def use(quick: bool) -> dict:
    """Measure a cluster of one node in use, and an idle head of two."""
    timed = f"import time; begun = time.perf_counter(); {QUERY}; time.perf_counter() - begun"
    figures = {}
    with Kernel() as kernel:
        kernel.run(LOAD)
        kernel.run(f"%%sky -c bench --engine spark {ONE}\n{QUERY}", STARTUP_SECONDS)
        overheads = []
        for _ in range(5 if quick else 60):
            cell = kernel.run(f"%%sky -c bench\n{timed}")
            inner = next(
                float(m["content"]["data"]["text/plain"])
                for _, m in cell.messages
                if m["msg_type"] == "execute_result"
            )
            overheads.append((cell.seconds - inner) * 1e3)
        figures["cell_overhead_ms"] = median(overheads[len(overheads) // 6 :])
        figures["interrupt_s"] = median(interrupt(kernel) for _ in range(1 if quick else 5))
        figures["single_idle_gb"] = memory_gb(kernel.home, "/spark/node-0")
        kernel.run("%sky down all")
        kernel.run(f"%%sky -c pair --engine spark {TWO}\n{QUERY}", STARTUP_SECONDS)
        figures["head_idle_gb"] = memory_gb(kernel.home, "/spark/node-0")
        kernel.run("%sky down all")
    say(f"in use: {figures}")
    return figures


def interrupt(kernel: Kernel) -> float:
    """Return the seconds from an interrupt to the end of its cell."""
    at: list[float] = []

    def press() -> None:
        at.append(time.perf_counter())
        kernel.manager.interrupt_kernel()

    timer = threading.Timer(4.0, press)
    timer.start()
    kernel.run(SLOW, allow_error=True)
    ended = time.perf_counter()
    timer.join()
    return ended - at[0]


def left_behind(quick: bool, seed: int) -> int:
    """Return the processes that launches leave of which one process is killed on the way."""
    drawn, left = random.Random(seed), 0
    for number in range(2 if quick else 20):
        role = drawn.choice(
            ["java", "jupyter_sky.machines.services", "engines.controller ", "supervisor.py"]
        )
        delay = drawn.uniform(0.5, 25.0)
        with Kernel() as kernel:
            kernel.run(LOAD)

            def kill(kernel: Kernel = kernel, role: str = role) -> None:
                victims = [p for p in processes(kernel.home) if role in _words(p)]
                for victim in victims[:1]:
                    victim.send_signal(signal.SIGKILL)

            timer = threading.Timer(delay, kill)
            timer.start()
            kernel.run(f"%%sky --engine spark {TWO}\n{QUERY}", STARTUP_SECONDS, allow_error=True)
            timer.join()
            kernel.run("%sky down all", allow_error=True)
            time.sleep(1.0)
            others = [p for p in processes(kernel.home) if "jupyter_sky" in _words(p)]
            others += [p for p in processes(kernel.home) if "java" in _words(p)]
            say(f"launch {number}: {role} killed after {delay:.0f} s, {len(others)} left")
            left += len(others)
    return left


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def main(quick: bool = False, seed: int = 1) -> dict:
    figures = {**starts(quick), **use(quick), **groupby(0.05 if quick else 20.0)}
    left = left_behind(quick, seed) + left_of_launches(2 if quick else 80, seed)
    return figures | {"left_behind": left}
