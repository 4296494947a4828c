"""Speed of transfers beside obstore, s5cmd, rclone and boto3, for the benchmark `storage`.

Each client has a process of its own, and the store one as well. Clients alternate in each round,
so that what else the machine does meets them all.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
CLIENT = [sys.executable, str(HERE / "storage_clients.py")]
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}
PEERS = ("obstore", "s5cmd", "rclone")
Runs = dict[tuple[str, str], list[dict[str, float]]]
"""Figures of each round by client and action."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Server:
    """The strict store in a process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.emulators.object_store", "--forget"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE.parents[1],
        )
        self.url = self._process.stdout.readline().strip()

    def ask(self, *words: object) -> list[int]:
        """Send a command; return what it answers."""
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer: list[int] = []
        while (line := self._process.stdout.readline().strip()) != "done":
            answer = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def scene() -> Iterator[tuple[Server, Path]]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        server = Server()
        try:
            yield server, Path(folder)
        finally:
            server.close()


def measure(client: str, action: str, url: str, path: Path) -> dict[str, float]:
    """Run one client once."""
    environment = {**os.environ, **KEYS, "AWS_REGION": "us-east-1"}
    if client in ("s5cmd", "rclone"):
        return measure_program(program(client, action, url, path), environment)
    command = [*CLIENT, client, action, url, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def program(client: str, action: str, url: str, path: Path) -> list[str]:
    """Return the command of a peer that is a program."""
    if client == "s5cmd":
        ends = [str(path), "s3://bucket/object"]
        options = ["--concurrency", "8", "--part-size", "16"]
        return [
            "s5cmd",
            "--endpoint-url",
            url,
            "cp",
            *options,
            *ends[:: 1 if action == "up" else -1],
        ]
    remote = f":s3,provider=Minio,env_auth,region=us-east-1,endpoint='{url}':bucket/object"
    ends = [str(path), remote][:: 1 if action == "up" else -1]
    parts = ["--s3-chunk-size=16M", "--s3-upload-concurrency=8", "--multi-thread-streams=8"]
    quiet = ["--s3-no-check-bucket", "--config=/dev/null", "--ignore-checksum"]
    return ["rclone", "copyto", *quiet, *parts, *ends]


def measure_program(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[0]}: {process.stderr.read().decode()[-500:]}")
    return {
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": time.perf_counter() - began,
        "peak_mb": usage.ru_maxrss / 1024,
    }


def compare(
    server: Server, folder: Path, actions: tuple[str, ...], clients: list[str], rounds: int
) -> Runs:
    """Alternate clients; return the figures of each round by client and action."""
    runs: Runs = {}
    paths = {"up": folder / "big", "down": folder / "down", "small": folder / "small"}
    for _ in range(rounds):
        for action in actions:
            for client in clients:
                runs.setdefault((client, action), []).append(
                    measure(client, action, server.url, paths[action])
                )
                paths["down"].unlink(missing_ok=True)
    for (client, action), each in runs.items():
        shown = (f"{name} {median_of(each, name):.2f}" for name in each[0])
        say(f"{action:6} {client:8} " + ", ".join(shown))
    return runs


def median_of(runs: list[dict[str, float]], name: str) -> float:
    """Return the median of a figure."""
    return statistics.median(run[name] for run in runs)


def cpu_ratio(runs: Runs, action: str) -> float:
    """Return the CPU seconds of ours over those of obstore."""
    return median_of(runs["ours", action], "cpu") / median_of(runs["obstore", action], "cpu")


def wall_ratio(runs: Runs, peers: list[str]) -> float:
    """Return the seconds up and down of ours over those of the best peer, from the best rounds.

    The best round of each client is the one that the rest of the machine disturbed least.
    """

    def best(client: str) -> float:
        return sum(min(run["wall"] for run in runs[client, action]) for action in ("up", "down"))

    return best("ours") / min(best(name) for name in peers)


def speed(server: Server, folder: Path, quick: bool) -> dict[str, float]:
    """Compare 1 GB in parts, and 10,000 files of 10 kB."""
    size, files, rounds = (64 * 10**6, 100, 1) if quick else (10**9, 10_000, 5)
    with (folder / "big").open("wb") as file:
        file.truncate(size)
    small = folder / "small"
    small.mkdir()
    for number in range(files):
        (small / f"{number:05d}").write_bytes(random.Random(number).randbytes(10_000))
    peers = [name for name in PEERS if name == "obstore" or shutil.which(name)]
    big = compare(server, folder, ("up", "down"), ["ours", *peers], rounds)
    compare(server, folder, ("up", "down"), ["boto3"], 1)
    little = compare(server, folder, ("small",), ["ours", "obstore"], 1 if quick else 9)
    shutil.rmtree(small)
    return {
        "upload_cpu_over_obstore": cpu_ratio(big, "up"),
        "download_cpu_over_obstore": cpu_ratio(big, "down"),
        "small_files_cpu_over_obstore": cpu_ratio(little, "small"),
        "wall_over_best_peer": wall_ratio(big, peers),
        "peak_mb": max(median_of(big["ours", action], "peak_mb") for action in ("up", "down")),
    }
