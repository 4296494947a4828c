"""Spark on several nodes, on this machine and on others reached by SSH."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from jupyter_sky.services.java import find_java
from jupyter_sky.services.spark_node import ensure_spark
from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.services.conftest import START, java_processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = """%%sky --engine spark
from pyspark.sql.functions import udf
import os, time
print("begun", flush=True)
slow = udf(lambda x: time.sleep(0.02) or x, "long")
spark.range(0, 400, 1, 8).select(slow("id").alias("n")).agg({"n": "sum"}).first()[0]
"""


def roles(data_dir: Path) -> dict[str, list[psutil.Process]]:
    """Return the processes of Java by what they are."""
    found: dict[str, list[psutil.Process]] = {}
    words = {"Master": "master", "Worker": "worker", "SparkSubmit": "server"}
    for process in java_processes(data_dir):
        names = {word.rpartition(".")[2] for word in process.cmdline()}
        role = next((words[name] for name in words if name in names), "executor")
        found.setdefault(role, []).append(process)
    return found


def test_two_nodes(needs_java: None, notebook: Notebook, data_dir: Path) -> None:
    line = "%%sky --engine spark --nodes 2 --cpus 1 --memory 3 -o hosts"
    started = notebook.run(f"{line}\nhosts = spark.range(0, 8, 1, 8).count()", START)
    assert started.status == "ok", started
    found = roles(data_dir)
    counts = {role: len(processes) for role, processes in found.items()}
    assert counts == {"master": 1, "worker": 2, "server": 1, "executor": 2}
    for process in java_processes(data_dir):
        secrets = [word for word in process.cmdline() if "secret=" in word or "token=" in word]
        assert not secrets, "all users of a machine can read arguments"

    sent = notebook.send(COUNT)
    notebook.wait_output("begun")
    found["executor"][0].kill()
    ran = notebook.collect(sent, START)
    assert ran.result == str(sum(range(400))), "the same result without one of the executors"

    ended = notebook.run("%sky down --yes")
    assert ended.status == "ok"
    wait_until(lambda: not java_processes(data_dir), "Java goes on")


@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_machines_reached_by_ssh(needs_java: None, fresh) -> None:
    from importlib.metadata import version

    home, java = ensure_spark(version("pyspark-client")), find_java()
    hosts = [SshHost(number, SPARK_HOME=str(home), JAVA_HOME=str(java)) for number in (81, 82)]
    try:
        fresh.data.mkdir(exist_ok=True)
        tables = [host.toml(f"box{number}") for number, host in enumerate(hosts)]
        (fresh.data / "hosts.toml").write_text("\n".join(tables))
        notebook = fresh()
        line = "%%sky --engine spark --cloud ssh --nodes 2"
        started = notebook.run(f"{line}\nspark.range(0, 9, 1, 4).count()", START)
        assert started.result == "9", started
        assert notebook.run("%%sky --sql -o n\nSELECT count(*) AS n FROM range(5)").status == "ok"
        assert notebook.run("n['n'].tolist()").result == "[5]"
        assert notebook.run("%sky down --yes").status == "ok"
        wait_until(lambda: not any(host.held() for host in hosts), "processes are left")
    finally:
        for host in hosts:
            host.close()
