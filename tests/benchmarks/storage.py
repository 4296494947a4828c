"""Transfers between this machine and an object store, beside obstore, s5cmd, rclone and boto3.

All move zeros to and from the strict store of the tests, which forgets what it gets, in a process
of its own; each client has a process of its own too. Clients alternate, and each figure is the
median of the rounds. Files lie in memory where the machine has such a folder: a disk in use by
others would be measured instead.

- ``upload_cpu_over_obstore``, ``download_cpu_over_obstore``: CPU seconds for 1 GB in parts of
  16 MiB over those of obstore. Ours includes the CRC-32C of every byte, obstore's no checksum.
- ``small_files_cpu_over_obstore``: CPU seconds for 10,000 files of 10 kB over those of obstore.
- ``wall_over_best_peer``: wall seconds of an upload and a download of 1 GB together over those of
  the fastest of obstore, s5cmd and rclone.
- ``peak_mb``: largest memory of our process for 1 GB, and for 100 GB of which the first
  minute is watched.
- ``resume_waste``: bytes that the store received, over the size, less 1, of an upload of 10 GB that
  was killed at 20, 40, 60 and 80 %.
- ``corrupt_accepted``: objects that differ from their source, or transfers that failed, after 200
  bits were changed on the way and in the store.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

HERE = Path(__file__).parent
CLIENT = [sys.executable, str(HERE / "storage_clients.py")]
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret-of-the-test"}
PEERS = ("obstore", "s5cmd", "rclone")


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
) -> dict[tuple[str, str], dict[str, float]]:
    """Alternate clients; return the median of each figure by client and action."""
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    paths = {"up": folder / "big", "down": folder / "down", "small": folder / "small"}
    for _ in range(rounds):
        for action in actions:
            for client in clients:
                runs.setdefault((client, action), []).append(
                    measure(client, action, server.url, paths[action])
                )
                paths["down"].unlink(missing_ok=True)
    medians = {
        case: {name: statistics.median(run[name] for run in each) for name in each[0]}
        for case, each in runs.items()
    }
    for (client, action), figures in medians.items():
        say(f"{action:6} {client:8} " + ", ".join(f"{k} {v:.2f}" for k, v in figures.items()))
    return medians


def speed(server: Server, folder: Path, quick: bool) -> dict[str, float]:
    size, files, rounds = (64 * 10**6, 100, 1) if quick else (10**9, 10_000, 3)
    with (folder / "big").open("wb") as file:
        file.truncate(size)
    small = folder / "small"
    small.mkdir()
    for number in range(files):
        (small / f"{number:05d}").write_bytes(random.Random(number).randbytes(10_000))
    peers = [name for name in PEERS if name == "obstore" or shutil.which(name)]
    big = compare(server, folder, ("up", "down"), ["ours", "boto3", *peers], rounds)
    little = compare(server, folder, ("small",), ["ours", "obstore", "boto3"], rounds)
    wall = {
        client: big[client, "up"]["wall"] + big[client, "down"]["wall"]
        for client in ("ours", *peers)
    }
    shutil.rmtree(small)
    return {
        "upload_cpu_over_obstore": big["ours", "up"]["cpu"] / big["obstore", "up"]["cpu"],
        "download_cpu_over_obstore": big["ours", "down"]["cpu"] / big["obstore", "down"]["cpu"],
        "small_files_cpu_over_obstore": little["ours", "small"]["cpu"]
        / little["obstore", "small"]["cpu"],
        "wall_over_best_peer": wall["ours"] / min(wall[name] for name in peers),
        "peak_mb": max(big["ours", "up"]["peak_mb"], big["ours", "down"]["peak_mb"]),
    }


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
    server.ask("counts")
    received = 0
    for share in (0.2, 0.4, 0.6, 0.8):
        process = start_ours(server, path, journal)
        while process.poll() is None and received < share * size:
            time.sleep(0.02)
            received += server.ask("counts")[1]
        kill(process)
    process = start_ours(server, path, journal)
    if process.wait():
        raise RuntimeError("the transfer did not go on")
    received += server.ask("counts")[1]
    path.unlink()
    say(f"killed four times: {received / 1e6:.0f} MB received for {size / 1e6:.0f}")
    return received / size - 1


def corrupt_accepted(quick: bool) -> float:
    """Change bits on the way up, in the store and on the way down; count what is wrong after."""
    from jupyter_sky.storage.dialects import AmazonDialect
    from jupyter_sky.storage.errors import SkyStorageError
    from jupyter_sky.storage.files import FilesStore
    from jupyter_sky.storage.signing import S3Credentials
    from jupyter_sky.storage.stores import s3_store
    from jupyter_sky.storage.transfer import Transfer, TransferItem, TransferOptions
    from jupyter_sky.storage.uri import StorageUri
    from tests.emulators.object_store import ObjectStore

    wrong, injected, wanted = 0, 0, 10 if quick else 200
    options = TransferOptions(part_size=4096)
    draw = random.Random(1)
    credentials = S3Credentials(*KEYS.values())
    with ObjectStore(min_part=1024) as server, tempfile.TemporaryDirectory() as name:
        folder = FilesStore(Path(name))
        while injected < wanted:
            server.reset()
            server.create("bucket")
            uri = StorageUri("s3", "bucket", options={"endpoint": server.url})
            store = s3_store(uri, server.url, "us-east-1", lambda: credentials, AmazonDialect())
            data = draw.randbytes(draw.choice([1, 4096, 30_000]))
            (folder.root / "a").write_bytes(data)
            server.fail("PUT", "flip", after=draw.randrange(4), at=draw.random())
            server.fail("PUT.*partNumber", "rot", after=draw.randrange(8))
            server.fail("GET /bucket/a", "flip", after=draw.randrange(4), at=draw.random())
            (folder.root / "b").unlink(missing_ok=True)
            try:
                Transfer(folder, store, [TransferItem(folder.stat("a"), "a")], None, options).run()
                wrong += server.content("bucket", "a") != data
                Transfer(store, folder, [TransferItem(store.stat("a"), "b")], None, options).run()
                wrong += (folder.root / "b").read_bytes() != data
            except SkyStorageError as error:
                say(f"not survived: {error}")
                wrong += 1
            injected += server.faults.injected
    say(f"{injected} corruptions, {wrong} accepted")
    return float(wrong)


def main(quick: bool = False) -> dict[str, float]:
    with scene() as (server, folder):
        figures = speed(server, folder, quick)
        figures["peak_mb"] = max(figures["peak_mb"], large_peak(server, folder, quick))
        figures["resume_waste"] = resume_waste(server, folder, quick)
    figures["corrupt_accepted"] = corrupt_accepted(quick)
    return figures
