"""Processes of Spark on a node.

A cluster of one node is a Connect server whose driver runs the tasks itself: one process of Java.
Of several nodes the first has master, worker and Connect server, the others a worker each.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.environment import install_packages
from jupyter_sky.machines.engines.node.notices import is_taken_away
from jupyter_sky.machines.engines.node.ports import free_port
from jupyter_sky.machines.engines.node.service_orders import EngineOrder, write_state
from jupyter_sky.machines.engines.wire.agent_link import listen_address
from jupyter_sky.machines.services import event_log
from jupyter_sky.machines.services.class_archive import ClassArchive
from jupyter_sky.machines.services.dashboard_login import require_token
from jupyter_sky.machines.services.engine_node import TICK_SECONDS, EngineNode
from jupyter_sky.machines.services.sizes import SparkSizes, size_spark

DAEMON_MEMORY = "256m"
"""Heap of master and worker."""
LIGHT_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of processes that run no tasks: they start sooner, and take less memory."""
ALIVE = "New state: ALIVE"
"""Line of the log of a master that registers workers."""
ALIVE_SECONDS = 10.0
EXECUTOR_HOME = Path("../../..")
"""Folder of the node for an executor, which works in ``work/APPLICATION/NUMBER``."""
DECOMMISSION = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
}
"""Properties by which nodes that a cloud takes back hand their blocks on."""
NOTICE_SECONDS = 1.0
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkNode(EngineNode):
    """Processes of Spark on this node, in the order of their start."""

    title = "Spark"

    def __init__(self, order: EngineOrder) -> None:
        super().__init__(order)
        self._java = self._home = self._python = Path()
        self._page: SparkPage | None = None
        self._archive: ClassArchive | None = None
        self._next_look = 0.0
        self.sizes: SparkSizes = size_spark(self.cpus, self.memory, order.nodes)

    def install(self) -> None:
        """Find Java and Spark on this machine, or install them."""
        order = self.order
        write_state(order, "installing", "Java")
        self._java = ensure_java()
        write_state(order, "installing", f"Spark {order.version}")
        self._home = ensure_spark(order.version)
        self._python = ensure_python()

    def start(self) -> Mapping[str, object]:
        """Start the worker of this node, and what the first one has beside it."""
        self._archive = ClassArchive(self._java, self._home, self.order.folder)
        order = self.order
        facts: dict[str, object] = {"version": order.version}
        if order.nodes > 1:
            self._start_worker()
        if order.rank == 0:
            facts["page"] = self._start_server()
        if order.rank == 0 or order.neighbours == 1:  # one of the nodes of a machine
            self._archive.make_later()
        return facts

    def check(self) -> None:
        """Raise SkyError when a process has ended; heed notices that the node is taken away."""
        super().check()
        self._make_archive()
        now = time.monotonic()
        if "worker" in self.processes and self.order.rank and now > self._next_look:
            self._next_look = now + NOTICE_SECONDS
            worker = self.processes["worker"]
            if is_taken_away(Path(self.order.directory)) and catches(worker.pid, signal.SIGPWR):
                # no new tasks there; what it holds moves to others. Node 0 has the driver, without
                # which nothing goes on
                worker.send_signal(signal.SIGPWR)
                self._next_look = math.inf

    def stop(self) -> None:
        """End all processes, and the making of an archive of classes."""
        super().stop()
        if self._archive is not None:
            self._archive.stop()

    def _make_archive(self) -> None:
        process = self.processes.get("server") or self.processes.get("worker")
        if self._archive is not None and process is not None:
            self._archive.make(process.pid)

    def _await_master(self, host: str, port: int) -> None:
        """Wait until the master registers workers.

        It listens before that. Workers that ask it too early ask again only after 5 to 15 s.
        """
        self.wait_port(host, port, "master")
        log = self.order.folder.with_name("node-0") / "master.log"
        deadline = time.monotonic() + ALIVE_SECONDS
        # a worker on another machine starts slower than a master that listens
        while log.exists() and ALIVE not in log.read_text(errors="replace"):
            self.check()
            if self.is_stopping or time.monotonic() > deadline:
                return
            time.sleep(TICK_SECONDS)

    def _start_worker(self) -> None:
        """Start the worker of this node, on the first node the master before it."""
        order, sizes = self.order, self.sizes
        host, __, port = order.master.rpartition(":")
        closed = page_properties(order) if self._has_login() else {}
        properties = self._write_properties(
            "daemon", _network_properties(order) | DECOMMISSION | closed
        )
        if order.rank == 0:
            self._spawn(
                "master",
                "org.apache.spark.deploy.master.Master",
                *("--host", host, "--port", port, "--webui-port", "0"),
                *("--properties-file", str(properties)),
            )
        self._await_master(host, int(port))
        self._spawn(
            "worker",
            "org.apache.spark.deploy.worker.Worker",
            *("--cores", str(self.cpus), "--memory", f"{sizes.executor_mb * sizes.executors}m"),
            *("--host", order.address, "--webui-port", "0"),
            *("--work-dir", str(order.folder / "work"), "--properties-file", str(properties)),
            f"spark://{order.master}",
        )

    def _has_login(self) -> bool:
        """Return whether pages of this Spark can want a token: those of 4 can, those of 3 not."""
        return any(self._home.glob("jars/jjwt-impl-*.jar"))

    def _start_server(self) -> Sequence[object]:
        """Start the Connect server, and write its address once it answers; return its page."""
        order = self.order
        port, page_port = free_port("127.0.0.1"), free_port("127.0.0.1")
        events = event_folder(order)
        events.mkdir(mode=0o700, parents=True, exist_ok=True)
        assert self._archive is not None
        settings = server_properties(order, self.sizes, port)
        if order.nodes > 1:
            options = self._archive.options("executor", EXECUTOR_HOME)
            settings["spark.executor.extraJavaOptions"] = options
        if self._has_login():
            settings |= {"spark.ui.enabled": "true", "spark.ui.port": str(page_port)}
            settings |= page_properties(order)
        properties = self._write_properties("server", settings)
        master = f"spark://{order.master}" if order.nodes > 1 else f"local[{self.cpus}]"
        self._spawn(
            "server",
            "org.apache.spark.deploy.SparkSubmit",
            *("--master", master, "--properties-file", str(properties)),
            *("--class", CONNECT_SERVER, "spark-internal"),
        )
        self.wait_port("127.0.0.1", port, "server")
        for log in events.iterdir():  # Spark lets the user's group read them
            log.chmod(0o600)
        page: Sequence[object] = (0, "", "")
        if self._has_login():
            self._page = SparkPage(page_port, page_key(order), page_token(order))
            page = (self._page.start(), page_token(order), "/jobs/")
        endpoint = {"port": port, "token": order.token, "version": order.version, "page": page}
        write_private(order.endpoint_file, endpoint | {"nodes": order.nodes, "cores": self.cpus})
        return page

    def _write_properties(self, name: str, properties: dict[str, str]) -> Path:
        """Write a file of properties, which has secrets: for this user only."""
        path = self.order.folder / f"{name}.conf"
        text = "".join(f"{key} {value}\n" for key, value in properties.items())
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        return path

    def _spawn(self, name: str, *command: str) -> None:
        environment = {
            "JAVA_HOME": str(self._java),
            "SPARK_HOME": str(self._home),
            # not the settings of this machine's own; none, as archives of classes want it
            "SPARK_CONF_DIR": str(self.order.folder / "settings"),
            "SPARK_LOCAL_IP": "127.0.0.1",  # of web pages; processes talk by their own addresses
            "PYSPARK_PYTHON": str(self._python),
            "PYSPARK_DRIVER_PYTHON": str(self._python),
            "MALLOC_ARENA_MAX": "2",  # threads share the rests of memory that they give back
        }
        assert self._archive is not None
        options = [self._archive.options(name)]
        if name != "server" or self.order.nodes > 1:  # one node runs its tasks in the server
            options.append(LIGHT_OPTIONS)
        if name == "server":
            environment["SPARK_SUBMIT_OPTS"] = " ".join(options)
        else:  # it would also be the heap of the server
            environment["SPARK_DAEMON_MEMORY"] = DAEMON_MEMORY
            environment["SPARK_DAEMON_JAVA_OPTS"] = " ".join(options)
        self.spawn(name, [str(self._home / "bin" / "spark-class"), *command], environment)


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


def catches(pid: int, number: int) -> bool:
    """Return whether a process handles a signal, which otherwise would end it.

    Examples
    --------
    >>> catches(os.getpid(), signal.SIGINT), catches(os.getpid(), signal.SIGPWR)
    (True, False)
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    mask = re.search(r"^SigCgt:\s*([0-9a-f]+)", text, re.MULTILINE)
    return mask is not None and bool(int(mask[1], 16) >> (number - 1) & 1)


def _network_properties(order: EngineOrder) -> dict[str, str]:
    """Return the properties by which processes trust each other, and nobody else."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": order.secret,
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.master.rest.enabled": "false",
        "spark.worker.cleanup.enabled": "true",
    }


def event_folder(order: EngineOrder) -> Path:
    """Return the folder of event logs, which come home with the journal of the cluster."""
    return Path(order.directory, "journal", event_log.FOLDER)


def server_properties(order: EngineOrder, sizes: SparkSizes, port: int) -> dict[str, str]:
    """Return the properties of the Connect server, which is the driver.

    Examples
    --------
    >>> order = EngineOrder("spark", "/c", 0, 1, "4.2.0", "127.0.0.1", "", "s", "t")
    >>> size = size_spark(cpus=2, memory=4, nodes=1)
    >>> server_properties(order, size, 15002)["spark.driver.memory"]
    '2150m'
    """
    several = {
        "spark.executor.memory": f"{sizes.executor_mb}m",
        "spark.executor.cores": str(sizes.executor_cores),
        **DECOMMISSION,
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
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_folder(order).as_uri(),
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
        "spark.eventLog.rolling.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
    }


# -- Java on a machine: found, installed where this process may, or asked for ---------------------

MIN_VERSION = 17
"""Oldest Java that Spark 4 runs on."""
PACKAGE = "openjdk-17-jre-headless"
INSTALLED_BELOW = Path("/usr/lib/jvm")
INSTALL_SECONDS = 600.0


def parse_version(text: str) -> int | None:
    """Return the major version in the output of ``java -version``; None without any.

    Examples
    --------
    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('version "1.8.0_392"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def find_java() -> Path | None:
    """Return the home of a Java of this machine that is new enough; None without any."""
    for command in _candidates():
        try:
            told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if (parse_version(told.stderr) or 0) >= MIN_VERSION:
            return command.resolve().parent.parent
    return None


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield Path(found)
    yield from sorted(INSTALLED_BELOW.glob("*/bin/java"))


def ensure_java() -> Path:
    """Return the home of Java, which is installed by apt where this process is root.

    Raises
    ------
    SkyError
        There is none, and it cannot be installed.
    """
    if home := find_java():
        return home
    lines = _install() if os.geteuid() == 0 and shutil.which("apt-get") else ""
    if lines is None and (home := find_java()):
        return home
    raise SkyError(
        _("Spark needs Java {version} or later, and this machine has none{lines}").format(
            version=MIN_VERSION, lines=lines or ""
        ),
        hint=_("sudo apt-get install {package}; or set JAVA_HOME").format(package=PACKAGE),
    )


def _install() -> str | None:
    """Install Java by apt; return the last lines of what fails, None when all went well."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", PACKAGE]
    for command in (["apt-get", "-qq", "update"], install):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
        if done.returncode:
            return "".join(f"\n    {line}" for line in done.stderr.strip().splitlines()[-4:])
    return None


# -- Web page of Spark's driver, behind a login ---------------------------------------------------
#
# Spark's own server wants a signed token in a header of each request (its `JWSFilter`), which no
# browser sends. A proxy on the same machine has the key: it wants the login of `dashboard_login`
# and passes on what is asked for, with that header. So a page is closed to other users of the
# machine whichever of both ports they try.

FILTER = "org.apache.spark.ui.JWSFilter"
READ_SECONDS = 60.0
MAX_CLIENTS = 16
"""Requests at the same time: a page loads scripts and styles in parallel."""
START_SECONDS = 30.0
_HEADER = b'{"alg":"HS256"}'
_SENT_ON = ("Accept", "Accept-Encoding", "Host", "If-Modified-Since")
_SENT_BACK = ("Cache-Control", "Content-Encoding", "Content-Type", "Last-Modified", "Location")


def page_token(order: EngineOrder) -> str:
    """Return the token of the link: another than that of the Connect server."""
    return hmac.digest(order.secret.encode(), b"web page", "sha256").hex()


def page_key(order: EngineOrder) -> bytes:
    """Return the key with which requests to Spark's own server are signed."""
    return hmac.digest(order.secret.encode(), b"signature", "sha256")


def page_properties(order: EngineOrder) -> dict[str, str]:
    """Return the properties by which pages of Spark want a signed token, and stay small.

    Examples
    --------
    >>> order = EngineOrder("spark", "/c", 0, 1, "4.2.0", "127.0.0.1", "", "s", "t")
    >>> page_properties(order)["spark.ui.killEnabled"]
    'false'
    """
    return {
        "spark.ui.filters": FILTER,
        f"spark.{FILTER}.param.secretKey": _encode(page_key(order)),
        "spark.ui.killEnabled": "false",
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "400",
        "spark.ui.retainedTasks": "10000",
        "spark.sql.ui.retainedExecutions": "200",
        "spark.port.maxRetries": "0",  # what listens there is Spark, and gets signed requests
    }


def signed_token(key: bytes) -> str:
    """Return a JSON Web Token without claims, signed with a key (HS256)."""
    text = f"{_encode(_HEADER)}.{_encode(b'{}')}"
    return f"{text}.{_encode(hmac.digest(key, text.encode(), 'sha256'))}"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class SparkPage:
    """Proxy before the page of a driver, in a thread of this process.

    Parameters
    ----------
    port
        Port of Spark's own server, on the loopback interface.
    key
        Key with which requests to it are signed.
    token
        Token that browsers need.
    """

    def __init__(self, port: int, key: bytes, token: str) -> None:
        self._target = {"port": port, "bearer": f"Bearer {signed_token(key)}"}
        self._token = token
        self._port = 0
        self._is_up = threading.Event()

    def start(self) -> int:
        """Listen on the loopback interface; return the port."""
        threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True).start()
        self._is_up.wait(START_SECONDS)
        return self._port

    async def _serve(self) -> None:
        application = Application([(r"/.*", _Proxy, self._target)], log_function=lambda _: None)
        server = HTTPServer(application)
        require_token(server, self._token, "spark.dashboard_link")
        sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        self._port = sockets[0].getsockname()[1]
        self._is_up.set()
        await asyncio.Event().wait()


class _Proxy(RequestHandler):
    """Request that is passed on: pages are only read."""

    def initialize(self, port: int, bearer: str) -> None:
        self._port, self._bearer = port, bearer

    async def get(self) -> None:
        client = AsyncHTTPClient(max_clients=MAX_CLIENTS)
        request = HTTPRequest(
            f"http://127.0.0.1:{self._port}{self.request.uri}",
            headers=_some(self.request.headers, _SENT_ON) | {"Authorization": self._bearer},
            follow_redirects=False,
            decompress_response=False,
            request_timeout=READ_SECONDS,
        )
        try:
            answer = await client.fetch(request, raise_error=False)
        except OSError:
            raise HTTPError(502) from None
        if answer.code == 599:  # it has not answered in time
            raise HTTPError(504)
        self.set_status(answer.code)
        for name, value in _some(answer.headers, _SENT_BACK).items():
            self.set_header(name, value)
        self.finish(None if answer.code == 304 else answer.body)


def _some(headers: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}
