"""Cells on managed services: sessions on loopback with a real Connect server behind them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from importlib.metadata import version

import pytest

from jupyter_sky.machines.services.spark_node import ensure_java, ensure_spark
from tests.conftest import Notebook, wait_until
from tests.emulators.connect_server import ConnectServer
from tests.emulators.dataproc import Dataproc
from tests.emulators.emr import Emr
from tests.emulators.emr_serverless import EmrServerless
from tests.services.conftest import START

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LINE = "%%sky -c etl --service emr-serverless --cpus 4 --memory 16 --nodes 2"
DATAPROC = "%%sky -c etl --service dataproc-serverless --cpus 8 --memory 32 --nodes 2"
SLOW = """%%sky -c etl
import time
from pyspark.sql.functions import udf
print("begun", flush=True)
slow = udf(lambda x: time.sleep(0.2) or x, "long")
spark.range(0, 80, 1, 8).select(slow("id").alias("n")).agg({"n": "sum"}).first()[0]
"""
CALLS = """import jupyter_sky as sky
@sky.function
def count(n):
    return sky.spark().range(n).count()
with sky.up("calls", service="emr", instance_type="m5.xlarge") as pool:
    counted = count(5) >> pool
counted
"""
COST = """import jupyter_sky as sky
(line,) = sky.cost("cloud").to_pandas().to_dict("records")
hours = max(line["seconds"], 60) / 3600
line["cloud"], line["price"], line["usd"], line["price"] * hours
"""


@pytest.fixture(scope="module")
def connect_server(needs_java: None) -> Iterator[ConnectServer]:
    """Yield the Connect server that stands behind all sessions."""
    made = ConnectServer(ensure_spark(version("pyspark-client")), ensure_java())
    made.wait()
    yield made
    made.close()


@pytest.fixture(scope="module")
def dataproc(connect_server: ConnectServer) -> Iterator[Dataproc]:
    made = Dataproc(connect_server.port)
    yield made
    made.close()


@pytest.fixture
def account(connect_server: ConnectServer) -> Iterator[Emr]:
    made = Emr(connect_server.port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def emr(connect_server: ConnectServer) -> Iterator[EmrServerless]:
    made = EmrServerless(connect_server.port)
    yield made
    made.close()


def test_cell_runs_on_a_session_that_ends_with_its_cluster(
    emr: EmrServerless, fresh: Callable[..., Notebook]
) -> None:
    emr.token_seconds = 60.0  # so short that the process beside the session renews it each second
    emr.refuse("StartSession", "ServiceQuotaExceededException", "no more vCPUs", "eu-west-1")
    emr.refuse("StartSession", "ServiceQuotaExceededException", "no more vCPUs", "us-east-1")
    notebook = fresh(**emr.env())
    first = notebook.run(f"{LINE}\nspark.range(0, 9, 1, 2).count()", START)
    assert first.result == "9", first
    (session,) = emr.live_sessions()
    application = emr.applications[session.application]
    assert application["region"] not in ("eu-west-1", "us-east-1"), "the next place was asked"
    assert application["maximumCapacity"] == {"cpu": "8 vCPU", "memory": "32 GB"}

    shown = notebook.run("%%sky -c etl\nprint(spark)\nspark.range(3)")
    assert shown.stdout.startswith("<Spark") and "emr-serverless" in shown.stdout
    assert shown.result == "DataFrame[id: bigint]"
    sent = notebook.send(SLOW)
    notebook.wait_output("begun")
    given = len(session.tokens)
    wait_until(lambda: len(session.tokens) > given + 2, "tokens are not renewed")
    emr.expire_tokens(session.id, but=2)
    slow = notebook.collect(sent, START)
    assert slow.result == str(sum(range(80))), "tokens expire within queries"
    assert notebook.run("%%sky -c etl\nspark.range(4).count()", START).result == "4"
    table = notebook.run("%%sky -c etl --sql -o n\nSELECT count(*) AS n FROM range(5)", START)
    assert table.status == "ok", table
    assert notebook.run("n['n'].tolist()").result == "[5]"
    shown_status = notebook.run("import jupyter_sky as sky\nsky.status()").result
    assert shown_status is not None and "emr-serverless" in shown_status

    assert notebook.run("%sky down --yes", START).status == "ok"
    wait_until(lambda: not emr.left(), "sessions or applications are left")
    cost = notebook.run(COST)
    cloud, price, usd, expected = ast.literal_eval(cost.result or repr(cost))
    assert cloud == "emr-serverless" and price > 0.1
    assert usd == pytest.approx(expected, rel=0.01), "the whole size, for a minute at least"


def test_session_that_ended_idle_ends_its_cluster_and_says_so(
    emr: EmrServerless, fresh: Callable[..., Notebook]
) -> None:
    emr.reset()
    notebook = fresh(**emr.env())
    begun = notebook.run(f"{LINE} --idle 20m\nx = 1", START)
    assert begun.status == "ok", begun
    (session,) = emr.live_sessions()
    emr.end_idle(session.id)
    wait_until(lambda: not emr.left(), "its cluster has not ended")
    ran = notebook.run("%%sky -c etl --service emr-serverless --cpus 4 --memory 16\nx", START)
    assert "was not used for 20" in str(ran)
    notebook.run("%sky down --yes", START)
    wait_until(lambda: not emr.left(), "sessions or applications are left")


def test_missing_role_is_told_with_the_command(
    emr: EmrServerless, fresh: Callable[..., Notebook]
) -> None:
    emr.reset()
    emr.roles.clear()
    ran = fresh(**emr.env()).run(f"{LINE}\n1", START)
    assert ran.status == "error" and "aws iam create-role" in str(ran)
    assert emr.left() == []


def test_killed_notebook_leaves_a_session_that_ends_with_its_engine(
    emr: EmrServerless, fresh: Callable[..., Notebook]
) -> None:
    emr.reset()
    notebook = fresh(**emr.env())
    ran = notebook.run(f"{LINE} --idle 3s\n1", START)
    assert ran.status == "ok", ran
    assert len(emr.live_sessions()) == 1
    notebook.manager.shutdown_kernel(now=True)
    wait_until(lambda: not emr.left(), "the process beside the session has not ended it")


def test_cluster_of_machines_runs_cells_and_costs_its_surcharge(
    account: Emr, fresh: Callable[..., Notebook]
) -> None:
    account.failing.append("INSTANCE_FAILURE: Insufficient capacity")
    notebook = fresh(**account.env())
    line = "%%sky -c etl --service emr --instance-type m5.xlarge --nodes 2 --on-demand"
    first = notebook.run(f"{line}\nspark.range(0, 9, 1, 2).count()", START)
    assert first.result == "9", first
    failed, used = account.clusters.values()
    places = [each.body["Instances"]["Placement"] for each in (failed, used)]
    assert failed.fails and places[0] != places[1], "the next place was asked"
    ran = notebook.run("%%sky -c etl\nspark.sql('SELECT 1 AS n').toPandas()['n'].tolist()", START)
    assert ran.result == "[1]", ran
    assert notebook.run("%sky down --yes", START).status == "ok"
    wait_until(lambda: not account.live(), "clusters are left")
    cost = notebook.run(COST)
    assert cost.result is not None and cost.result.startswith("('emr', 0.48"), cost
    called = notebook.run(CALLS, START)
    assert called.result == "5", called
    wait_until(lambda: not account.live(), "clusters are left")


def test_bridged_session_runs_cells_and_ends_with_its_cluster(
    dataproc: Dataproc, fresh: Callable[..., Notebook]
) -> None:
    dataproc.refuse("create", "INVALID_ARGUMENT", "Insufficient 'CPUS' quota", "us-central1")
    notebook = fresh(**dataproc.env())
    first = notebook.run(f"{DATAPROC}\nspark.range(0, 9, 1, 2).count()", START)
    assert first.result == "9", first
    (session,) = dataproc.live()
    assert "locations/us-central1/" not in session.name, "the next place was asked"

    rows = 200_000
    made = notebook.run(
        "%%sky -c etl\nimport pandas as pd\n"
        f"frame = spark.createDataFrame(pd.DataFrame({{'n': range({rows})}}))\n"
        "int(frame.toPandas()['n'].sum())",
        START,
    )
    assert made.result == str(sum(range(rows))), made
    sent = notebook.send(SLOW)
    notebook.wait_output("begun")
    assert dataproc.bridge is not None
    wait_until(lambda: dataproc.bridge and dataproc.bridge.connections, "no connection")
    dataproc.bridge.cut()
    slow = notebook.collect(sent, START)
    assert slow.result == str(sum(range(80))), "a connection that is cut is made again"

    assert notebook.run("%sky down --yes", START).status == "ok"
    wait_until(lambda: not dataproc.live(), "sessions are left")
