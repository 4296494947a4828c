"""Batch job of Slurm that runs jobs of a bag on the nodes that it was given.

Started as ``python -m jupyter_sky.workflows.bags.fleet.slurm_job FOLDER NUMBER``; with several
tasks ``srun`` starts it for each of them, as the ranks of one MPI program, and the first one
reports.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

MESSAGE, RESULT, LOG = "{number}.message", "{number}.result", "{number}.log"
"""Files of a message: what is to be run, the outcomes, what the batch job has printed."""


def main(argv: list[str]) -> None:
    """Run the jobs of a message; write their outcomes, as a whole or not at all."""
    import cloudpickle

    from jupyter_sky.workflows.bags.fleet.node import run_jobs

    folder, number = Path(argv[0]), argv[1]
    app, calls, seconds = cloudpickle.loads((folder / MESSAGE.format(number=number)).read_bytes())
    outcomes = run_jobs(app, calls, seconds)
    if int(os.environ.get("SLURM_PROCID", "0")):
        return
    node = os.environ.get("SLURMD_NODENAME", "")
    write_whole(folder / RESULT.format(number=number), cloudpickle.dumps((outcomes, node)))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that others see only when all of it is on the disk."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


if __name__ == "__main__":
    main(sys.argv[1:])
