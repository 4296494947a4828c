"""Spark on two machines reached by SSH: its processes, the loss of one, its end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import psutil
import pytest

from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.machines.engines.node.notices import NOTICES_FILE
from jupyter_sky.machines.services.spark_node import ensure_java, ensure_spark
from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.services.conftest import START

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]

SLOW = """%%sky
import time
from pyspark.sql.functions import udf
print("begun", flush=True)
slow = udf(lambda x: time.sleep(0.05) or x, "long")
spark.range(0, 400, 1, 8).select(slow("id").alias("n")).agg({"n": "sum"}).first()[0]
"""

SHUFFLED = """%%sky --name moved
import time
from pyspark.sql.functions import udf
spark.range(1).count()
print("begun", flush=True)
slow = udf(lambda x: time.sleep(0.05) or x, "long")
parts = spark.range(0, 400, 1, 8).select(slow("id").alias("n")).repartition(16, "n")
list(parts.select(slow("n").alias("n")).selectExpr("sum(n)", "count(n)").first())
"""


@pytest.fixture
def hosts(needs_java: None) -> Iterator[list[SshHost]]:
    """Yield two machines that share this one's Spark and Java."""
    home = ensure_spark(version("pyspark-client"))
    settings = {"SPARK_HOME": str(home), "JAVA_HOME": str(ensure_java())}
    made = [SshHost(number, **settings) for number in (81, 82)]
    try:
        yield made
    finally:
        for host in made:
            host.close()


def roles(host: SshHost) -> dict[str, psutil.Process]:
    """Return the processes of Java on a machine by what they are."""
    found = {}
    words = {"Master": "master", "Worker": "worker", "SparkSubmit": "server"}
    for process in host.processes():
        with suppress(psutil.NoSuchProcess):  # those that end as they are looked at
            # not one that makes an archive of classes
            if process.name() == "java" and "-Xshare:dump" not in process.cmdline():
                names = {word.rpartition(".")[2] for word in process.cmdline()}
                role = next((words[name] for name in words if name in names), "executor")
                found[role] = process
    return found


def try_to_join(home: Path, master: psutil.Process, folder: Path) -> str:
    """Let a worker without the secret ask the master to register it; return its log."""
    words = master.cmdline()
    address = f"spark://{words[words.index('--host') + 1]}:{words[words.index('--port') + 1]}"
    (folder / "log4j2.properties").write_text("rootLogger.level = info\n")
    command = [home / "bin" / "spark-class", "org.apache.spark.deploy.worker.Worker"]
    log = folder / "log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [*command, "--webui-port", "0", "--work-dir", folder / "work", address],
            env={"SPARK_HOME": str(home), "JAVA_HOME": str(ensure_java()), "PATH": "/usr/bin:/bin"},
            stdout=output,
            stderr=output,
        )
        try:
            wait_until(lambda: "Failed to connect to master" in log.read_text(), "no refusal")
        finally:
            worker.kill()
            worker.wait()
    return log.read_text()


def test_two_machines(hosts: list[SshHost], fresh: Callable[[], Notebook], tmp_path: Path) -> None:
    data: Path = fresh.data  # type: ignore[attr-defined]
    data.mkdir(exist_ok=True)
    tables = [host.toml(f"box{number}") for number, host in enumerate(hosts)]
    (data / "hosts.toml").write_text("\n".join(tables))
    notebook = fresh()
    line = "%%sky --engine spark --cloud ssh --nodes 2"
    started = notebook.run(f"{line}\nspark.range(0, 9, 1, 4).count()", START)
    assert started.result == "9", started
    wait_until(lambda: set(roles(hosts[1])) == {"worker", "executor"}, "no second executor")
    assert set(roles(hosts[0])) == {"master", "server", "worker", "executor"}

    link = notebook.run("%%sky --engine spark --on 0\nprint(spark.dashboard_link)").stdout.strip()
    assert build_opener(HTTPCookieProcessor()).open(link).status == 200, "through the tunnel"
    with pytest.raises(HTTPError):
        urlopen(link.partition("?")[0])

    for process in [*roles(hosts[0]).values(), *roles(hosts[1]).values()]:
        words = [word for word in process.cmdline() if "secret=" in word or "token=" in word]
        assert not words, "every user of a machine can read arguments"
    home = Path(ensure_spark(version("pyspark-client")))
    refused = try_to_join(home, roles(hosts[0])["master"], tmp_path)
    assert "Expected SaslMessage" in refused and "Successfully registered" not in refused

    sent = notebook.send(SLOW)
    notebook.wait_output("begun")
    roles(hosts[1])["executor"].kill()
    ran = notebook.collect(sent, START)
    assert ran.result == str(sum(range(400))), "the same result without one of the executors"

    # what the second machine holds moves to the first one, which ends the query alone
    wait_until(lambda: set(roles(hosts[1])) == {"worker", "executor"}, "no second executor")
    sent = notebook.send(SHUFFLED)
    notebook.wait_output("begun")
    (folder,) = hosts[1].clusters()
    notice = {"kind": "preempt", "id": "a", "seen": 0.0, "ends": time.time() + 120}
    write_private(folder / NOTICES_FILE, {"service": "AwsNotices", "notices": [notice]})
    wait_until(lambda: set(roles(hosts[1])) == {"worker"}, "its executor goes on")
    ran = notebook.collect(sent, START)
    assert ran.result == str([sum(range(400)), 400]), ran
    (log,) = hosts[1].home.glob("**/spark/node-1/worker.log")
    assert "Decommission" in log.read_text()
    told = notebook.run("%sky logs moved --spark").stdout  # of the machine, as it runs
    assert "8 of 8" in told, told

    assert (
        notebook.run("%%sky --sql -o n\nSELECT count(*) AS n FROM range(5)", START).status == "ok"
    )
    assert notebook.run("n['n'].tolist()").result == "[5]"
    assert notebook.run("%sky down --yes", START).status == "ok"
    wait_until(lambda: not any(host.held() for host in hosts), "processes are left")
    shown = notebook.run("%sky logs moved --spark").stdout
    assert "8 of 8" in shown, "its log has come home"
