"""Rows of a store, and a lock on its file, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_sky.base.remote import processes
from jupyter_sky.base.store.store import ClusterRow, RunRow

MINE = json.dumps(processes.identity())
GONE = json.dumps(processes.identity() | {"pid": 2**22 + 1})
CLUSTER = ClusterRow(
    name="train",
    state="up",
    cloud="aws",
    region="us-east-1",
    instance_type="g5.xlarge",
    spot=True,
    price=1.0,
    nodes=1,
    resources="--gpus A10G:1 --spot",
    offer={"vcpus": 4},
    machines=[{"id": "i-1"}],
    connection={"file": "c.json"},
    notebook="a.ipynb",
    created=1000.0,
    idle=600.0,
    price_source="catalog",
    price_date="2026-01-01",
)
RUN = RunRow(
    run_id="r1",
    notebook="a.ipynb",
    session="s1",
    cell=7,
    name=None,
    cluster="train",
    code="x = 1",
    price=1.0,
    nodes=1,
    started=1000.0,
    ended=None,
    last_beat=1000.0,
    status="running",
    shown=0,
)

# Holds the file locked until a line arrives on its standard input.
_LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(sys.argv[2])
db.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
db.close()
"""


@contextmanager
def locked(path: Path, readers_too: bool = False) -> Iterator[None]:
    pragma = f"PRAGMA locking_mode = {'EXCLUSIVE' if readers_too else 'NORMAL'}"
    command = [sys.executable, "-c", _LOCKER, str(path), pragma]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    try:
        assert process.stdout.readline() == "locked\n"
        yield
    finally:
        process.communicate("\n", timeout=20)
