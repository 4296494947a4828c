"""Figures of the JupyterLab panel: its load on the server.

`panel_ms` is the time of the server for one refresh of the panel, in milliseconds, while something
has changed since the last one: with 100 clusters and a ledger of 10,000 rows. `lab_start` says what
`bundle_kb` and `startup_ms` are. `meter_core_percent` is the share of a core, in percent, that a
kernel takes for a live `sky.cost()` and a live `sky.meter()` over the same store, above what it
takes with neither.
"""

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from traitlets.config import Configurable

CLUSTERS, ROWS, RUNS = 100, 10_000, 2_000
BLOCK = 20

INSERT_INTERVAL = (
    "INSERT INTO intervals (id, cluster_id, price, started, last_beat, ended) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)


def say(text: str) -> None:
    print(text, flush=True)


def fill(data: Path, clusters: int, rows: int, runs: int) -> None:
    """Fill a store with live clusters, each with a long price history, and with many runs."""
    from jupyter_sky.base.remote import processes
    from jupyter_sky.base.requests.offers import Offer
    from jupyter_sky.base.store.store import ClusterRow, RunRow, Store

    rng, now = random.Random(1), time.time()
    store = Store.open(data)
    offer = {"cloud": "aws", "region": "us-east-1", "instance_type": "g5.xlarge", "vcpus": 4}
    offer |= {"memory": 16, "zone": "us-east-1a", "spot": True, "price": 1.0, "source": "aws"}
    assert Offer(**offer).place
    inserts = []
    for number in range(clusters):
        machine = {"id": f"i-{number}", "cloud": "aws", "cluster": f"c{number}", "rank": 0}
        machine |= {"state": "running", "started": now - 86400, "lease_end": now + 86400}
        store.save_cluster(
            ClusterRow(
                name=f"c{number}",
                state="up",
                cloud="aws",
                region="us-east-1",
                instance_type="g5.xlarge",
                spot=True,
                price=1.0,
                nodes=1,
                resources="--gpus A10G:1 --spot",
                offer=offer,
                machines=[machine],
                connection={"file": f"c{number}/link.json"},
                notebook=f"n{number % 7}.ipynb",
                created=now - 2 * 86400,
                idle=600.0,
                price_source="aws",
                price_date="2026-11-01",
            )
        )
        each = rows // clusters
        step = 2 * 86400 / each
        for turn in range(each):
            at = now - 2 * 86400 + turn * step
            ended = None if turn == each - 1 else at + step
            values = (number * each + turn, number + 1, rng.random(), at, at, ended)
            inserts.append((INSERT_INTERVAL, values))
    store.database.write(*inserts)
    for number in range(runs):
        started = now - 86400 + number * 86400 / runs
        going = number >= runs - 20
        row = RunRow(
            run_id=f"r{number}",
            notebook=f"n{number % 7}.ipynb",
            session="s",
            cell=number,
            name=None,
            cluster=f"c{number % clusters}",
            code="train(model, data, epochs=10)",
            price=1.0,
            nodes=1,
            started=started,
            ended=None if going else started + 30.0,
            last_beat=started,
            status="running" if going else "ok",
            shown=0,
            owner=json.dumps(processes.identity()),
            stage="running" if going else "done",
        )
        store.insert_ended_run(row)
    store.close()


def panel(quick: bool) -> dict[str, float]:
    """Return a refresh, each time after a run has changed: nothing but ended runs is remembered."""
    from jupyter_sky.base.store.store import Store
    from jupyter_sky.interfaces.server.service import SkyService

    refreshes = BLOCK if quick else 10 * BLOCK
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SKY_DATA_DIR"] = folder
        fill(Path(folder), CLUSTERS, ROWS, RUNS)
        server = Configurable()
        server.root_dir = folder
        service = SkyService(server, None)
        other = Store.open(Path(folder))
        seconds, cpu, size = [], [], 0
        for number in range(refreshes + 1):
            other.request_stop(f"r{RUNS - 1 - number % 20}", f"by refresh {number}")
            begun, used = time.perf_counter(), time.process_time()
            size = len(json.dumps(service.overview()))
            seconds.append((time.perf_counter() - begun) * 1e3)
            cpu.append((time.process_time() - used) * 1e3)
        other.close()
        service.close()
    first, seconds = seconds[0], seconds[1:]
    blocks = [median(seconds[at : at + BLOCK]) for at in range(0, len(seconds), BLOCK)]
    say(f"panel: median {median(seconds):.1f} ms (CPU {median(cpu):.1f} ms), first {first:.1f} ms,")
    say(f"  p95 {quantiles(seconds, n=20)[-1]:.1f} ms, {size / 1e3:.0f} kB of JSON")
    return {"panel_ms": min(blocks)}


METER = """
from pathlib import Path
from jupyter_sky.knowledge.ledger.report import make_report, parse_since, report_signature
from jupyter_sky.base.store.store import Store
from jupyter_sky.interfaces.widgets.cost import Cost
store = Store.open(Path({folder!r}))
read = lambda by, since: make_report(store, "n1.ipynb", by, parse_since(since))
news = lambda: report_signature(store)
views = [Cost(read, print, news, "cluster"), Cost(read, print, news, compact=True)]
"""
SHOW = """
for view in views:
    view._ipython_display_()
"""


def meter(quick: bool) -> dict[str, float]:
    """Return a kernel that shows costs, watched from outside; the first seconds are its start."""
    import psutil
    from jupyter_client.manager import KernelManager

    from jupyter_sky.base.store.store import Store

    pace, seconds = (1, 2) if quick else (10, 120)
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), CLUSTERS, ROWS, RUNS)
        other = Store.open(Path(folder))
        root = str(Path(__file__).parents[2])
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(env={**os.environ, "PYTHONPATH": root}, cwd=folder)
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        kernel = psutil.Process(manager.provisioner.pid)

        def share() -> float:
            time.sleep(pace / 2)
            before, begun = kernel.cpu_times(), time.monotonic()
            for number in range(seconds // pace):  # a run ends at each step
                time.sleep(pace)
                other.end_run(f"r{RUNS - 1 - number % 20}", "ok", time.time())
            after, took = kernel.cpu_times(), time.monotonic() - begun
            return 100 * (after.user + after.system - before.user - before.system) / took

        try:
            answer = client.execute_interactive(METER.format(folder=folder), timeout=60)
            assert answer["content"]["status"] == "ok", answer
            idle = share()
            shown: list[str] = []
            hook = lambda message: shown.append(message["msg_type"])  # noqa: E731
            client.execute_interactive(SHOW, timeout=60, output_hook=hook)
            assert shown.count("display_data") == 2, shown
            live = share()
        finally:
            other.close()
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    say(f"meter: {live:.2f} % of a core with two live views, {idle:.2f} % without")
    return {"meter_core_percent": max(0.0, live - idle)}


def main(quick: bool = False) -> dict[str, float]:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.benchmarks.lab_start import start

    figures: dict[str, float] = {}
    for part in (panel, meter, start):
        figures |= part(quick)
    return figures
