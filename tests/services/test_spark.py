"""Spark on one machine: the session of cells, SQL, errors, interrupts, security, its end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import pytest

from jupyter_sky.machines.services import event_log
from tests.conftest import Notebook, wait_until
from tests.services.conftest import START, find_controller, java_processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SLEEPING = """%%sky
from pyspark.sql.functions import udf
import time
print("begun", flush=True)
slow = spark.range(0, 1000, 1, 8).select(udf(lambda x: time.sleep(5) or x, "long")("id").alias("n"))
slow.agg({"n": "sum"}).collect()
"""


def test_cells_share_one_session(sparks: Notebook) -> None:
    made = sparks.run("%%sky\nspark.range(10).createOrReplaceTempView('numbers')", START)
    assert made.status == "ok"
    assert sparks.run("%%sky --engine spark\nspark.table('numbers').count()").result == "10"
    shown = sparks.run("%%sky\nprint(spark)\nspark.table('numbers')")
    assert shown.stdout.startswith("<Spark 4.") and "on 1 node>" in shown.stdout
    assert shown.result == "DataFrame[id: bigint]", "showing it collects nothing"


def test_stopped_session_begins_anew(sparks: Notebook) -> None:
    assert sparks.run("%%sky\nspark.stop()").status == "ok"
    assert sparks.run("%%sky\nspark.range(3).count()").result == "3"


def test_own_variable_of_that_name_is_kept(sparks: Notebook) -> None:
    assert sparks.run("%%sky\nkept, spark = spark, 'mine'").status == "ok"
    assert sparks.run("%%sky --engine spark\nspark").result == "'mine'"
    assert sparks.run("%%sky\nspark = kept").status == "ok"


def test_python_runs_on_executors(sparks: Notebook) -> None:
    code = """%%sky -o total,mean,sent
import pandas as pd
from pyspark.sql.functions import pandas_udf, udf
square = udf(lambda x: x * x, "long")
total = spark.range(10).select(square("id").alias("n")).toPandas()["n"].sum()
half = pandas_udf(lambda column: column / 2, "double")
mean = spark.range(11).select(half("id").alias("n")).agg({"n": "avg"}).first()[0]
sent = spark.createDataFrame(pd.DataFrame({"n": range(100_000)})).count()
"""
    ran = sparks.run(code)
    assert ran.status == "ok", ran
    assert "FutureWarning" not in ran.stderr
    assert sparks.run("int(total), mean, sent").result == "(285, 2.5, 100000)"


def test_sql_cell_shows_a_table(sparks: Notebook) -> None:
    sparks.run("least = 3")
    code = (
        "%%sky --sql -i least -o few\nSELECT id, id * 2 AS twice\nFROM range(6) WHERE id >= :least;"
    )
    ran = sparks.run(code)
    assert ran.status == "ok", ran
    tables = [shown["data"] for shown in ran.of("display_data") if "text/html" in shown["data"]]
    assert [row.split() for row in tables[-1]["text/plain"].splitlines()][1:] == [
        ["3", "6"],
        ["4", "8"],
        ["5", "10"],
    ]
    assert sparks.run("few['twice'].tolist()").result == "[6, 8, 10]"


def test_long_result_of_sql_is_cut(sparks: Notebook) -> None:
    ran = sparks.run("%%sky --sql\nSELECT id FROM range(100000000)")
    texts = [shown["data"].get("text/plain", "") for shown in ran.of("display_data")]
    assert any(text.endswith("the first 1000 rows; -o NAME has all") for text in texts)


def test_error_of_sql_says_condition_and_line(sparks: Notebook) -> None:
    ran = sparks.run("%%sky --sql\nSELECT id\nFROM nowhere")
    assert ran.ename == "SkySqlError"
    assert "TABLE_OR_VIEW_NOT_FOUND" in ran.traceback
    assert "line 2: FROM nowhere\n             ^" in ran.traceback
    assert len(ran.traceback.splitlines()) <= 4, ran.traceback
    assert not ran.stderr


def test_error_of_a_query_shows_the_users_frames(sparks: Notebook) -> None:
    ran = sparks.run("%%sky\ndef query():\n    spark.sql('SELECT nothing').show()\nquery()")
    assert ran.ename == "AnalysisException"
    assert "in query()" in ran.traceback and "UNRESOLVED_COLUMN" in ran.traceback
    assert "site-packages" not in ran.traceback and "org.apache" not in ran.traceback
    assert not ran.stderr, "the client's own line of JSON"


def test_functions_have_the_session(sparks: Notebook) -> None:
    code = """
import jupyter_sky as sky
@sky.function
def count(n):
    return sky.spark().range(n).count()
pool = sky.up(cpus="2", memory="4", engine="spark")
count(12) >> pool
"""
    ran = sparks.run(code)
    assert ran.result == "12", ran


def test_interrupt_ends_the_query(sparks: Notebook) -> None:
    sent = sparks.send(SLEEPING)
    sparks.wait_output("begun")
    progress = ""
    while "tasks done, 2 running" not in progress:
        message = sparks.client.get_iopub_msg(timeout=100)
        progress = message["content"].get("data", {}).get("text/plain", "")
    sparks.interrupt()
    ran = sparks.collect(sent)
    assert ran.ename == "KeyboardInterrupt"
    # its tasks, which take all cores for 10 min, have ended, too
    assert sparks.run("%%sky\nspark.range(5).count()").result == "5"


def test_wrong_token_is_refused(sparks: Notebook) -> None:
    code = """%%sky
import json, os, pathlib
from pyspark.sql import SparkSession
folder = pathlib.Path(os.environ["JUPYTER_SKY_ENGINE"].rpartition(":")[0], "spark")
port = json.loads((folder / "endpoint.json").read_text())["port"]
for token in (";token=wrong", ""):
    try:
        SparkSession.builder.remote(f"sc://localhost:{port}/{token}").create().range(1).count()
    except Exception as error:
        print(repr(str(error)))
print(*{oct(file.stat().st_mode & 0o77) for file in folder.glob("**/*.conf")})
"""
    ran = sparks.run(code)
    assert ran.status == "ok", ran
    lines = ran.stdout.splitlines()
    assert len(lines) == 3, lines
    assert "Invalid authentication token" in lines[0], "a wrong token"
    assert "UNAUTHENTICATED" in lines[1], "no token"
    assert lines[2] == "0o0", "files with secrets are the user's alone"


def test_event_log_has_the_stages_of_a_cell(sparks: Notebook) -> None:
    query = "spark.range(0, 999, 1, 3).groupBy('id').count().count()"
    assert sparks.run(f"%%sky --name grouped\n{query}").result == "999"
    printed = sparks.run("%sky logs grouped --spark").stdout
    assert printed.startswith("Spark in grouped") and "3 of 3" in printed, printed
    told = "[r['tasks'] for r in sky.logs('grouped', spark=True).to_dicts()]"
    assert sparks.run(f"import jupyter_sky as sky\n{told}").result.startswith("['3 of 3', ")


def test_event_log_is_private_and_has_no_secret(sparks: Notebook, data_dir: Path) -> None:
    (log,) = data_dir.glob("local/*/journal/spark/*.zstd*")
    assert log.stat().st_mode & 0o77 == 0 and log.parent.stat().st_mode & 0o77 == 0
    text = b"\n".join(event_log._lines(log)).decode()
    (conf,) = data_dir.glob("local/*/spark/node-0/server.conf")
    properties = dict(line.split(" ", 1) for line in conf.read_text().splitlines())
    secrets = ("spark.authenticate.secret", "spark.connect.authenticate.token")
    for name in secrets:
        assert f'"{name}":"*********(redacted)"' in text, name
        assert properties[name] not in text, name


def test_page_wants_the_link(sparks: Notebook, data_dir: Path) -> None:
    link = sparks.run("%%sky --engine spark\nprint(spark.dashboard_link)").stdout.strip()
    plain, __, token = link.partition("/jobs/?token=")
    assert len(token) == 64
    for request in ("/jobs/", "/jobs/?token=" + "0" * 64, "/api/v1/applications"):
        with pytest.raises(HTTPError) as refused:
            urlopen(plain + request, timeout=60)
        assert refused.value.code == 403, request
    browser = build_opener(HTTPCookieProcessor())
    with browser.open(f"{plain}/?token={token}", timeout=60) as page:
        assert page.url == f"{plain}/jobs/" and "Spark Jobs" in page.read().decode()
    with browser.open(f"{plain}/api/v1/applications", timeout=60) as page:
        (application,) = json.load(page)
    environment = ""
    for path in ("environment/", f"api/v1/applications/{application['id']}/environment"):
        with browser.open(f"{plain}/{path}", timeout=60) as page:
            environment += page.read().decode()
    (conf,) = data_dir.glob("local/*/spark/node-0/server.conf")
    properties = dict(line.split(" ", 1) for line in conf.read_text().splitlines())
    for name, value in properties.items():
        if any(word in name.lower() for word in ("secret", "token")):
            assert name in environment and value not in environment, name
    # the page itself, which other users of the machine can reach without the proxy
    direct = f"http://127.0.0.1:{properties['spark.ui.port']}"
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{direct}/jobs/?token={token}", timeout=60)
    assert refused.value.code == 403
    with pytest.raises(HTTPError) as posted:
        browser.open(f"{plain}/jobs/", data=b"x", timeout=60)
    assert posted.value.code == 405, "nothing can be changed by it"


def test_ports_are_closed_for_other_machines(sparks: Notebook, data_dir: Path) -> None:
    (server,) = java_processes(data_dir)
    listening = [c.laddr.ip for c in server.net_connections("inet") if c.status == "LISTEN"]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def test_server_that_was_killed_is_told_and_started_anew(sparks: Notebook, data_dir: Path) -> None:
    (server,) = java_processes(data_dir)
    server.kill()
    wait_until(lambda: not server.is_running(), "the server goes on")
    # at once or after some tries, according to whether its end has been noticed
    assert sparks.run("%%sky\nspark.range(1).count()").status == "error"
    told = sparks.run("%%sky\nspark.range(1).count()")
    assert told.ename == "SkyError" and "--engine spark" in told.traceback
    again = sparks.run("%%sky --engine spark\nspark.range(4).count()", START)
    assert again.result == "4", again


def test_nothing_is_left_of_a_killed_controller(sparks: Notebook, data_dir: Path) -> None:
    (server,) = java_processes(data_dir)
    os.kill(find_controller(data_dir).pid, signal.SIGKILL)
    wait_until(lambda: not server.is_running(), "Java goes on")
    wait_until(lambda: not java_processes(data_dir), "Java goes on")
    # what Spark has written until then has outlived it, and the cluster
    assert "3 of 3" in sparks.run("%sky logs grouped --spark").stdout
