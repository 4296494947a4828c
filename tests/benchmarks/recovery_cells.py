"""Time that a cell with ``--recover`` stands still when its cluster is killed."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.conftest import Notebook, clean, part

CELL = """%%sky --recover --checkpoint 1s
import time
import jupyter_sky as sky
with sky.checkpointed("sum") as state:
    for number in sky.resumable(range(60), state):
        print(f"item {number}", flush=True)
        time.sleep(0.1)
"""


def measure_gap() -> float:
    """Return the seconds from a kill of the controller to the next output of the cell."""
    with tempfile.TemporaryDirectory(prefix="sky-bench-") as folder:
        data = Path(folder, "data")
        env = {"SKY_DATA_DIR": str(data), "PYTHONPATH": str(Path(__file__).parents[2])}
        book = Notebook(Path(folder), env, "recovery.ipynb")
        try:
            sent = book.send(CELL)
            book.wait_output("item 30")
            killed = time.monotonic()
            part(data, "controller")[0].kill()
            book.wait_output("sum: goes on from the save of")
            gap = time.monotonic() - killed
            book.collect(sent)
        finally:
            book.stop()
            clean(data)
    return gap
