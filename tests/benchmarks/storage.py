"""Transfers between this machine and an object store, beside obstore, s5cmd, rclone and boto3.

All move zeros to and from the strict store of the tests, which forgets what it gets, in a process
of its own; each client has a process of its own too. Files lie in memory where the machine has such
a folder: a disk in use by others would be measured instead.

- ``upload_cpu_over_obstore``, ``download_cpu_over_obstore``: CPU seconds for 1 GB in parts of
  16 MiB over those of obstore. Ours includes the CRC-32C of every byte, obstore's no checksum.
- ``small_files_cpu_over_obstore``: CPU seconds for 10,000 files of 10 kB over those of obstore.
- ``wall_over_best_peer``: wall seconds of an upload and a download of 1 GB together over those of
  the fastest of obstore, s5cmd and rclone.
- ``peak_mb``: largest memory of our process for 1 GB, and for 100 GB of which the first
  minute is watched.
- ``resume_waste``: bytes that the store received, over the size, less 1, of an upload of 10 GB that
  was killed at 20, 40, 60 and 80 %.
- ``cache_hit_ms``: milliseconds in which a dataset of 10,000 objects that is cached is ready.
- ``corrupt_accepted``: objects that differ from their source, or transfers that failed, after 200
  pieces of damage on the way and in the store.
- ``lost_or_left``: objects that are lost or differ, and uploads, files, locks, notes and processes
  that are still there, after 200 kills of transfers, workers and connections.
- ``estimate_error``: booked dollars of copies over those that a dry run had estimated, the ratio
  that is farthest from 1; what is booked is what the stores have counted.
- ``secrets_found``: places with a credential in processes, files and outputs of this machine and of
  one reached by SSH, while data move there and afterwards. It needs OpenSSH's server.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from storage_costs import estimate_error
from storage_faults import corrupt_accepted
from storage_kills import lost_or_left
from storage_secrets import secrets_found
from storage_speed import CLIENT, Server, say, scene, speed


def large_peak(server: Server, folder: Path, quick: bool) -> float:
    """Watch the memory of an upload of 100 GB for a minute."""
    path = folder / "large"
    with path.open("wb") as file:
        file.truncate(10**9 if quick else 10**11)
    process = start_ours(server, path, folder)
    peak, ends = 0.0, time.monotonic() + (2 if quick else 60)
    while process.poll() is None and time.monotonic() < ends:
        peak = max(peak, peak_of(process.pid))
        time.sleep(0.1)
    kill(process)
    path.unlink()
    say(f"100 GB: {peak:.0f} MB at most")
    return peak


def start_ours(server: Server, path: Path, journal: Path) -> subprocess.Popen:
    environment = {**os.environ, "STORAGE_JOURNAL": str(journal)}
    command = [*CLIENT, "ours", "up", server.url, str(path)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def peak_of(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def kill(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def resume_waste(server: Server, folder: Path, quick: bool) -> float:
    """Kill an upload four times; count what the store received in all."""
    size = 4 * 10**8 if quick else 10**10
    path, journal = folder / "resumed", folder / "journal"
    journal.mkdir()
    with path.open("wb") as file:
        file.truncate(size)
    begun = server.ask("counts")[1]

    def received() -> int:
        return server.ask("counts")[1] - begun

    for share in (0.2, 0.4, 0.6, 0.8):
        process = start_ours(server, path, journal)
        while process.poll() is None and received() < share * size:
            time.sleep(0.02)
        kill(process)
    process = start_ours(server, path, journal)
    if process.wait():
        raise RuntimeError("the transfer did not go on")
    total = received()
    path.unlink()
    say(f"killed four times: {total / 1e6:.0f} MB received for {size / 1e6:.0f}")
    return total / size - 1


def cache_hit_ms(quick: bool) -> float:
    """Lease a dataset of 10,000 objects that is cached already."""
    from jupyter_sky.machines.storage.stores.cache import DatasetCache
    from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset, object_identity

    keys = [f"{number // 100}/{number}" for number in range(100 if quick else 10_000)]
    dataset = Dataset(
        tuple(CachedObject(key, object_identity("s3://bucket", key, "1", 1), 1) for key in keys)
    )
    seconds = []
    with tempfile.TemporaryDirectory() as name:
        cache = DatasetCache(Path(name))

        def download(pairs: object) -> None:
            for _, path in pairs:  # type: ignore[attr-defined]
                path.write_bytes(b"x")

        with cache.lease(dataset, download) as lease:
            assert lease.downloaded == len(keys)
        for _ in range(5):
            began = time.perf_counter()
            with cache.lease(dataset, download) as lease:
                seconds.append(time.perf_counter() - began)
                assert lease.downloaded == 0
    return statistics.median(seconds) * 1000


def main(quick: bool = False) -> dict[str, float]:
    """Return all figures."""
    with scene() as (server, folder):
        figures = speed(server, folder, quick)
        figures["peak_mb"] = max(figures["peak_mb"], large_peak(server, folder, quick))
        figures["resume_waste"] = resume_waste(server, folder, quick)
    figures["cache_hit_ms"] = cache_hit_ms(quick)
    figures["corrupt_accepted"] = corrupt_accepted(quick)
    figures["lost_or_left"] = lost_or_left(quick)
    figures["estimate_error"] = estimate_error(quick)
    figures["secrets_found"] = secrets_found()
    return figures
