"""Launches of managed services that meet faults, and what they leave behind.

Each launch is a process with a data directory of its own, against an emulated account: EMR
Serverless, EMR on machines, Dataproc. Answers are lost or cut, requests are refused, sessions fail,
and the process is killed on the way. Then the user comes back once, by ``jupyter-sky reap``. What
costs, or waits to, counts as left behind: sessions, clusters, applications, schedules, processes.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from notebook_client import end_processes, own_folders, processes

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.emulators.dataproc import Dataproc
from tests.emulators.emr import Emr
from tests.emulators.emr_serverless import EmrServerless

ROLE = "arn:aws:iam::123456789012:role/ends"
LAUNCH = """
import sys
import jupyter_sky as sky
from jupyter_sky.base.settings.settings import Sky

Sky.load().providers = {"aws": {"scheduler_role": sys.argv[2]}}
pool = sky.up("etl", service=sys.argv[1], cpus="8", memory="32", nodes="2", idle="20s")
print("up", flush=True)
pool.down()
"""
MACHINE_TYPE = "m5.2xlarge"
END_SECONDS = 90.0
"""A session may take so long to be gone after the user has come back."""
Account = EmrServerless | Emr | Dataproc
MAKE = {
    "emr-serverless": ("CreateApplication", "StartSession"),
    "emr": ("RunJobFlow", "StartSession"),
    "dataproc-serverless": ("create",),
}
"""Requests that make something, by service."""
REFUSALS = {
    "emr-serverless": ("ServiceQuotaExceededException", "Insufficient capacity"),
    "emr": ("ValidationException", "INSTANCE_FAILURE: Insufficient capacity"),
    "dataproc-serverless": ("RESOURCE_EXHAUSTED", "Insufficient 'CPUS' quota"),
}
"""Code of a refusal, and reason of a session that fails, by service."""


def nothing(account: Any, service: str, drawn: random.Random) -> None:
    """Let all go well."""


def lose_answer(account: Any, service: str, drawn: random.Random) -> None:
    """Cut an answer off within its body."""
    account.trouble(drawn.choice(MAKE[service]), "cut")


def garble_answer(account: Any, service: str, drawn: random.Random) -> None:
    """Send half of an answer as if it were all."""
    account.trouble(drawn.choice(MAKE[service]), "garble")


def break_down(account: Any, service: str, drawn: random.Random) -> None:
    """Answer with an internal error, twice."""
    account.trouble(drawn.choice(MAKE[service]), "break", 2)


def refuse(account: Any, service: str, drawn: random.Random) -> None:
    """Refuse for want of quota."""
    account.refuse(drawn.choice(MAKE[service]), REFUSALS[service][0], "quota exceeded")


def fail_late(account: Any, service: str, drawn: random.Random) -> None:
    """Let what was made fail as it starts."""
    account.failing.append(REFUSALS[service][1])


FAULTS: tuple[Callable[[Any, str, random.Random], None], ...] = (
    nothing,
    lose_answer,
    garble_answer,
    break_down,
    refuse,
    fail_late,
)


def left_of(account: Any) -> list[str]:
    """Return what of an account is there and costs, or waits to."""
    if isinstance(account, EmrServerless):
        return account.left()
    if isinstance(account, Emr):
        return [one.id for one in account.live()] + list(account.schedules)
    return [one.name for one in account.live()]


def launch(home: Path, env: dict[str, str], service: str, kill_after: float | None) -> str:
    """Launch once; return how it ended: ``up``, ``failed`` or ``killed``."""
    script = LAUNCH
    if service == "emr":  # of machines, a type is named
        script = script.replace('cpus="8", memory="32"', f'instance_type="{MACHINE_TYPE}"')
    command = [sys.executable, "-c", script, service, ROLE]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log)
    try:
        code = process.wait(kill_after or 300)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "killed"
    return "failed" if code else "up"


def come_back(home: Path, env: dict[str, str]) -> None:
    """Reap as a user does who looks again."""
    command = [sys.executable, "-m", "jupyter_sky.cli", "reap", "--here"]
    subprocess.run(command, cwd=home, env=env, capture_output=True, timeout=300)


def age(account: Any) -> None:
    """Let an hour pass for applications that no session was started on."""
    if isinstance(account, EmrServerless):
        for application in account.applications.values():
            application["createdAt"] -= 3600


def left_of_launch(account: Any, service: str, fault: Any, drawn: random.Random) -> tuple[str, int]:
    """Return how one launch ended, and how much it left."""
    account.reset()
    home = Path(tempfile.mkdtemp(prefix="sky-services-"))
    env = os.environ | own_folders(home) | account.env()
    try:
        fault(account, service, drawn)
        kill_after = drawn.uniform(0.3, 8.0) if drawn.random() < 0.5 else None
        ended = launch(home, env, service, kill_after)
        if fault is nothing and ended == "failed":
            raise RuntimeError(f"{service}: {(home / 'log').read_text()[-2000:]}")
        come_back(home, env)
        age(account)
        deadline = time.monotonic() + END_SECONDS
        while left_of(account) or processes(home):
            if time.monotonic() > deadline:
                break
            time.sleep(1.0)
            come_back(home, env)
        left = [*left_of(account), *(process.name() for process in processes(home))]
        if left:
            print(f"{service}, {fault.__name__}, {ended}: left {left}", flush=True)
            print((home / "log").read_text()[-2000:], flush=True)
        return ended, len(left)
    finally:
        end_processes(home)
        with contextlib.suppress(OSError):
            shutil.rmtree(home)


def left_of_launches(number: int, seed: int) -> int:
    """Return what launches of managed services leave behind that meet faults."""
    drawn, ends, left = random.Random(seed), Counter[str](), 0
    accounts: dict[str, Account] = {
        "emr-serverless": EmrServerless(),
        "emr": Emr(),
        "dataproc-serverless": Dataproc(),
    }
    try:
        for count in range(number):
            service = drawn.choice(list(accounts))
            fault = FAULTS[count % len(FAULTS)]
            ended, more = left_of_launch(accounts[service], service, fault, drawn)
            ends[f"{fault.__name__}: {ended}"] += 1
            left += more
    finally:
        for account in accounts.values():
            account.close()
    print(f"launches of managed services: {dict(sorted(ends.items()))}", flush=True)
    return left
