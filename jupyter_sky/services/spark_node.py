"""Processes of Spark on a node (``python -m``), children of its controller or node agent.

    python -m jupyter_sky.services.spark_node < ORDER

A cluster of one node is a Connect server whose driver runs the tasks itself: one process of Java.
Of several nodes the first has master, worker and Connect server, the others a worker each. They
end with this process, and this one with its parent.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from ..engines.controller.agent_server import listen_address
from ..engines.node.environment import install_packages
from ..errors import SkyError
from ..remote.supervisor import PR_SET_PDEATHSIG, kill_all, prctl, tail_log, write_private
from ..translation import _
from .java import ensure_java
from .orders import SparkOrder, free_port, write_state
from .sizes import SparkSizes, size_spark

START_SECONDS = 300.0
"""Longest start of a process: a machine that is busy is slow."""
STOP_SECONDS = 3.0
TICK_SECONDS = 0.1
DAEMON_MEMORY = "256m"
"""Heap of master and worker."""
DAEMON_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of master and worker, which do little: they start sooner, and take less memory."""
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkNode:
    """Processes of Spark on this node, in the order of their start."""

    def __init__(self, order: SparkOrder) -> None:
        self.order = order
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.is_stopping = False
        self._java = self._home = self._python = Path()
        cpus, memory = node_size(order)
        self.cpus = cpus
        self.sizes: SparkSizes = size_spark(cpus, memory, order.nodes)

    def run(self) -> None:
        """Start what belongs to the node, and watch it until this process is told to end."""
        order = self.order
        write_state(order, "installing", "Java")
        self._java = ensure_java()
        write_state(order, "installing", f"Spark {order.version}")
        self._home = ensure_spark(order.version)
        self._python = ensure_python()
        write_state(order, "starting")
        if order.nodes > 1:
            self._start_worker()
        if order.rank == 0:
            self._start_server()
        write_state(order, "ready")
        while not self.is_stopping:
            self._check()
            time.sleep(TICK_SECONDS)

    def _start_worker(self) -> None:
        """Start the worker of this node, on the first node the master before it."""
        order, sizes = self.order, self.sizes
        host, __, port = order.master.rpartition(":")
        properties = self._write_properties("daemon", _network_properties(order))
        if order.rank == 0:
            self._spawn(
                "master",
                "org.apache.spark.deploy.master.Master",
                *("--host", host, "--port", port, "--webui-port", "0"),
                *("--properties-file", str(properties)),
            )
        self._wait_port(host, int(port), "master")
        self._spawn(
            "worker",
            "org.apache.spark.deploy.worker.Worker",
            *("--cores", str(self.cpus), "--memory", f"{sizes.executor_mb * sizes.executors}m"),
            *("--host", order.address, "--webui-port", "0"),
            *("--work-dir", str(order.folder / "work"), "--properties-file", str(properties)),
            f"spark://{order.master}",
        )

    def _start_server(self) -> None:
        """Start the Connect server, and write its address once it answers."""
        order = self.order
        port = free_port("127.0.0.1")
        properties = self._write_properties("server", server_properties(order, self.sizes, port))
        master = f"spark://{order.master}" if order.nodes > 1 else f"local[{self.cpus}]"
        self._spawn(
            "server",
            "org.apache.spark.deploy.SparkSubmit",
            *("--master", master, "--properties-file", str(properties)),
            *("--class", CONNECT_SERVER, "spark-internal"),
        )
        self._wait_port("127.0.0.1", port, "server")
        endpoint = {"port": port, "token": order.token, "version": order.version}
        write_private(order.endpoint_file, endpoint | {"nodes": order.nodes, "cores": self.cpus})

    def _write_properties(self, name: str, properties: dict[str, str]) -> Path:
        """Write a file of properties, which has secrets: for this user only."""
        path = self.order.folder / f"{name}.conf"
        text = "".join(f"{key} {value}\n" for key, value in properties.items())
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        return path

    def _spawn(self, name: str, *command: str) -> None:
        folder = self.order.folder
        log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        environment = os.environ | {
            "JAVA_HOME": str(self._java),
            "SPARK_HOME": str(self._home),
            "SPARK_CONF_DIR": str(folder),  # not the settings of this machine's own Spark
            "SPARK_LOCAL_IP": "127.0.0.1",  # of web pages; processes talk by their own addresses
            "PYSPARK_PYTHON": str(self._python),
            "PYSPARK_DRIVER_PYTHON": str(self._python),
        }
        if name != "server":  # it would also be the heap of the server
            environment["SPARK_DAEMON_MEMORY"] = DAEMON_MEMORY
            environment["SPARK_DAEMON_JAVA_OPTS"] = DAEMON_OPTIONS
        self.processes[name] = subprocess.Popen(
            [str(self._home / "bin" / "spark-class"), *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_end_with_parent,
        )
        os.close(log)

    def _wait_port(self, host: str, port: int, name: str) -> None:
        """Wait until a process of this cluster listens."""
        deadline = time.monotonic() + START_SECONDS
        while not self.is_stopping:
            try:
                with socket.create_connection((host, port), timeout=1.0):
                    return
            except OSError:
                pass
            self._check()
            if time.monotonic() > deadline:
                raise SkyError(
                    _("Spark's {name} has not come up within {seconds:g} s{log}").format(
                        name=name, seconds=START_SECONDS, log=self._log_tail(name)
                    )
                )
            time.sleep(TICK_SECONDS)

    def _check(self) -> None:
        """Raise SkyError when a process has ended that was to go on."""
        for name, process in self.processes.items():
            if process.poll() is not None and not self.is_stopping:
                raise SkyError(
                    _("Spark's {name} on node {rank} has ended{log}").format(
                        name=name, rank=self.order.rank, log=self._log_tail(name)
                    )
                )

    def _log_tail(self, name: str) -> str:
        return tail_log(self.order.folder / f"{name}.log")

    def stop(self) -> None:
        """End all processes: the server first, so that it can tell its executors."""
        self.is_stopping = True
        if self.order.rank == 0:  # cells learn of the end from this file
            self.order.endpoint_file.unlink(missing_ok=True)
        for process in reversed(self.processes.values()):
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in reversed(self.processes.values()):
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                kill_all([process.pid])
                process.wait()


def ensure_spark(version: str) -> Path:
    """Return the folder of a version of Spark, which is installed once on a machine.

    That of ``SPARK_HOME`` is taken if it has this version, else the package of PyPI, some 430 MB.
    """
    home = os.environ.get("SPARK_HOME")
    if home and list(Path(home).glob(f"jars/spark-core_*-{version}.jar")):
        return Path(home)
    try:
        packages = install_packages([f"pyspark=={version}"], "--engine spark")
    except SkyError as error:
        raise SkyError(
            error.message,
            hint=_("where no index answers: put Spark {version} there, and set SPARK_HOME").format(
                version=version
            ),
        ) from error
    return Path(packages) / "pyspark"


def ensure_python() -> Path:
    """Return the Python of executors: that of the engines, with what functions of pandas need."""
    if find_spec("pandas"):
        return Path(sys.executable)
    packages = Path(install_packages(["pandas<3"], "--engine spark"))
    return packages.parents[2] / "bin" / "python"


def node_size(order: SparkOrder) -> tuple[int, float]:
    """Return the vCPUs of a node and its memory in GiB."""
    import psutil

    cpus = len(order.cpus or os.sched_getaffinity(0))
    if order.cpus is None:
        cpus = max(cpus // order.neighbours, 1)
    memory = order.memory or psutil.virtual_memory().total / 2**30 / order.neighbours
    return cpus, memory


def _network_properties(order: SparkOrder) -> dict[str, str]:
    """Return the properties by which processes trust each other, and nobody else."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": order.secret,
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.master.rest.enabled": "false",
        "spark.worker.cleanup.enabled": "true",
    }


def server_properties(order: SparkOrder, sizes: SparkSizes, port: int) -> dict[str, str]:
    """Return the properties of the Connect server, which is the driver.

    Examples
    --------
    >>> order = SparkOrder("/c", 0, 1, "4.2.0", "127.0.0.1", "", "s", "t")
    >>> size = size_spark(cpus=2, memory=4, nodes=1)
    >>> server_properties(order, size, 15002)["spark.driver.memory"]
    '2150m'
    """
    several = {
        "spark.executor.memory": f"{sizes.executor_mb}m",
        "spark.executor.cores": str(sizes.executor_cores),
        # machines that a cloud takes back say so, and hand their blocks on
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
    }
    return {
        **_network_properties(order),
        **(several if order.nodes > 1 else {}),
        "spark.app.name": "jupyter_sky",
        "spark.driver.memory": f"{sizes.driver_mb}m",
        "spark.driver.host": order.address,
        "spark.driver.bindAddress": listen_address(order.address),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.authenticate.token": order.token,
        "spark.sql.connect.serverStacktrace.enabled": "false",
        "spark.sql.shuffle.partitions": str(sizes.partitions),
        "spark.sql.warehouse.dir": str(order.folder / "warehouse"),
        "spark.local.dir": str(order.folder / "local"),
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
    }


def _end_with_parent() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Run the processes that the order on the standard input names."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    order = SparkOrder(**json.loads(sys.stdin.readline()))
    order.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if order.cpus:
        os.sched_setaffinity(0, order.cpus)
    try:
        node = SparkNode(order)
    except SkyError as error:
        write_state(order, "failed", error.message, error.hint)
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        node.is_stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # is for cells
    try:
        node.run()
    except SkyError as error:
        write_state(order, "failed", error.message, error.hint)
    finally:
        node.stop()


if __name__ == "__main__":
    main()
