"""A group-by over Parquet files that fit into no engine's memory: own Spark, and its peers.

The same files, groups and machine for all: own Spark on two nodes of 3 GiB, Dask with two workers
of 3 GiB, Polars as a stream, and pandas file by file, whose parts are added up by hand. Each runs
in processes of its own, one after the other, and all results are compared.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from notebook_client import Kernel

FILE_GB = 0.5
GROUPS = 100_000
ROW_BYTES = 28
CLUSTER = "--engine spark --nodes 2 --cpus 1 --memory 3"
SPARK = """%%sky -c groupby --engine spark
import json, time
from pyspark.sql import functions as F
begun = time.perf_counter()
found = (
    spark.read.parquet({folder!r}).groupBy("key")
    .agg(F.sum("a").alias("a"), F.avg("b").alias("b"), F.max("c").alias("c"))
    .agg(F.count("*"), F.sum("a"), F.sum("b"), F.sum("c")).first()
)
print(json.dumps([time.perf_counter() - begun, *found]))
"""
PEERS = {
    "pandas": """
import pandas as pd
parts = []
for path in sorted(folder.glob("*.parquet")):
    frame = pd.read_parquet(path)
    grouped = frame.groupby("key")
    part = grouped.agg(a=("a", "sum"), b=("b", "sum"), n=("b", "count"), c=("c", "max"))
    parts.append(part)
    if len(parts) == 8:
        parts = [merge(parts)]
whole = merge(parts)
found = [len(whole), whole.a.sum(), (whole.b / whole.n).sum(), whole.c.sum()]
""",
    "dask": """
import dask.dataframe as dd
from dask.distributed import Client
with Client(n_workers=2, threads_per_worker=1, memory_limit="3GiB", dashboard_address=None):
    frame = dd.read_parquet(str(folder)).groupby("key")
    whole = frame.agg({"a": "sum", "b": "mean", "c": "max"}).compute()
found = [len(whole), whole.a.sum(), whole.b.sum(), whole.c.sum()]
""",
    "polars": """
import polars as pl
frame = pl.scan_parquet(folder / "*.parquet").group_by("key")
whole = frame.agg(pl.sum("a"), pl.mean("b"), pl.max("c")).collect(engine="streaming")
found = [len(whole), whole["a"].sum(), whole["b"].sum(), whole["c"].sum()]
""",
}
PEER = """
import json, sys, time
from pathlib import Path

def merge(parts):
    return pd.concat(parts).groupby("key").agg({{"a": "sum", "b": "sum", "n": "sum", "c": "max"}})

def main():
    folder = Path(sys.argv[1])
    begun = time.perf_counter()
{body}
    print(json.dumps([time.perf_counter() - begun, *map(float, found)]))

if __name__ == "__main__":
    main()
"""


def write_files(folder: Path, gigabytes: float) -> None:
    """Write random numbers, which no compression makes smaller."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    drawn = np.random.default_rng(1)
    size = min(FILE_GB, gigabytes / 2)
    for number in range(round(gigabytes / size)):
        rows = int(size * 1e9 / ROW_BYTES)
        columns = {"key": drawn.integers(0, GROUPS, rows, np.int32)}
        columns |= {name: drawn.random(rows) for name in "abc"}
        path = folder / f"{number:03}.parquet"
        pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)


def by_spark(folder: Path) -> list[float]:
    """Return seconds and figures of own Spark."""
    with Kernel() as kernel:
        kernel.run("%load_ext jupyter_sky")
        kernel.run(f"%%sky -c groupby {CLUSTER}\nspark.range(1).count()", 600)
        cell = kernel.run(SPARK.format(folder=str(folder)), 3600)
        kernel.run("%sky down all")
    text = "".join(
        message["content"]["text"]
        for __, message in cell.messages
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout"
    )
    return json.loads(text.strip().splitlines()[-1])


def by_peer(name: str, folder: Path) -> list[float]:
    """Return seconds and figures of a peer, in a process of its own."""
    body = "\n".join(f"    {line}" for line in PEERS[name].strip().splitlines())
    with tempfile.TemporaryDirectory() as home:
        script = Path(home) / f"{name}_groupby.py"
        text = PEER.format(body=body)
        if name == "pandas":
            text = f"import pandas as pd\n{text}"
        script.write_text(text)
        done = subprocess.run(
            [sys.executable, script, folder], cwd=home, capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def groupby(gigabytes: float) -> dict[str, float]:
    """Measure all over files of a size in GB; Polars where it is installed."""
    folder = Path(tempfile.mkdtemp(prefix="sky-groupby-"))
    try:
        begun = time.monotonic()
        write_files(folder, gigabytes)
        print(f"{gigabytes:g} GB written in {time.monotonic() - begun:.0f} s", flush=True)
        names = [name for name in PEERS if importlib.util.find_spec(name)]
        found = {"spark": by_spark(folder)} | {name: by_peer(name, folder) for name in names}
    finally:
        shutil.rmtree(folder)
    seconds = {name: values[0] for name, values in found.items()}
    print(f"group-by of {gigabytes:g} GB, seconds: {seconds}", flush=True)
    for name, values in found.items():
        for ours, theirs in zip(found["spark"][1:], values[1:], strict=True):
            if abs(ours - theirs) > 1e-6 * abs(ours):
                raise RuntimeError(f"{name} has found {values[1:]}, Spark {found['spark'][1:]}")
    figures = {"groupby_over_local_pandas": seconds["spark"] / seconds["pandas"]}
    others = {name: at for name, at in seconds.items() if name != "pandas"}
    return figures | {f"groupby_{name}_s": at for name, at in others.items()}
