"""Figures of searches whose trials run on machines of emulated clouds, at known speeds.

    python tests/benchmarks/search_live.py

`live_trials`: regret (%) of the machine that is found by 12 of 100 trials against the best of all,
whose run time is known; the larger of two searches. The best is the tenth by price, so trying the
cheapest ones does not find it soon. `live_left_behind`: machines that are up after the searches,
and after one that was interrupted. `live_overhead`: what the ledger has booked over the sum of what
trials are said to have cost. `live_refusals_ok`: whether a search of whose launches 30 % are
refused, in all zones of a region, finds the same machine; that of the best machine is refused the
first time. `live_minutes`: how long the search without refusals took. The one with refusals takes
five minutes more, as a place that has refused is asked again after these.
"""

from __future__ import annotations

import ast
import math
import os
import random
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.emulators.fault_injection import Script
from tests.emulators.loopback import Loopback, loopback

TRIALS, CONFIGURATIONS = 12, 100
REFUSED = 0.3
CODES = "InsufficientInstanceCapacity", "ZONE_RESOURCE_POOL_EXHAUSTED"
LAUNCH_SECONDS = 60.0
"""Requests for a type of machine within this time are of one launch."""
SETTLE_SECONDS = 20.0
"""Clouds delete machines after they have answered; no lease ends one within this time."""
SEARCH = """
import os, signal, sys, threading, time
import jupyter_sky as sky
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.decisions.search import on_sale

session = sessions.open_session({}, "benchmark.ipynb", lasting=False)
space = on_sale(cpus="4+", cloud="aws,gcp", types=50)

# of a workload that needs 12 GiB and uses cores ever less well; families differ, by up to 2
SPEEDS = '''
def seconds(values):
    slow = 1.0 + (sum(map(ord, values["family"])) * 104729 % 100) / 100
    return 10.0 * slow * (0.2 + 0.8 * (4 / values["vcpus"]) ** 0.9)
'''
exec(SPEEDS)
CELL = SPEEDS + '''
import time
if sky_configuration["memory"] < 12:
    raise MemoryError("12 GiB")
time.sleep(seconds(sky_configuration))
'''
working = [point for point in space.points if point["memory"] >= 12]

def cost(point):
    return seconds(point.values) * point.price

if sys.argv[1] == "interrupted":
    threading.Timer(float(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        sky.search(CELL + "time.sleep(600)", space, 4, progress=False)
    except KeyboardInterrupt:
        pass
    print({})
else:
    found = sky.search(CELL, space, int(sys.argv[2]), progress=False, refusal_seconds=400)
    rows = session.store.clusters(live_only=False)
    booked = sum(session.ledger.cluster_usd(row.name) or 0.0 for row in rows)
    print({
        "configurations": len(space), "tries": len(found.tries), "refused": len(found.refused),
        "best": str(found.best.point), "type": found.best.point.offer.instance_type,
        "regret": 100 * (cost(found.best.point) / min(map(cost, working)) - 1),
        "booked": booked, "said": found.usd,
    })
sessions.close()
"""


class RefuseLaunches(Script):
    """Refusal of a share of the launches, each in every zone that it asks.

    The first launch of one type of machine is always refused.
    """

    def fits(self, zone: str, instance_type: str, spot: bool) -> bool:
        """Draw whether a launch is refused, with its first request."""
        now, (begun, is_refused) = time.monotonic(), _launches.get(instance_type, (-math.inf, True))
        if now - begun > LAUNCH_SECONDS:
            is_first = begun == -math.inf and instance_type == self.fields["first"]
            is_refused = is_first or _draw.random() < REFUSED
            _launches[instance_type] = (now, is_refused)
        return is_refused


_draw = random.Random(7)
_launches: dict[str, tuple[float, bool]] = {}
"""By type of machine, when its last launch began and whether that is refused."""


def run_search(clouds: list[Loopback], *words: str) -> dict[str, object]:
    """Run a search in a process of its own, with an account of each cloud."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "SKY_DATA_DIR": str(Path(folder, "data"))}
        for cloud in clouds:
            env |= cloud.env
        command = [sys.executable, "-c", textwrap.dedent(SEARCH), *words]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
        assert ended.returncode == 0, ended.stderr
        return ast.literal_eval(ended.stdout.splitlines()[-1])


def count_left(clouds: list[Loopback]) -> int:
    """Return the machines that are up once the deletions that were asked for are done."""
    end = time.monotonic() + SETTLE_SECONDS
    while any(cloud.machines() for cloud in clouds) and time.monotonic() < end:
        time.sleep(0.5)
    left = [machine for cloud in clouds for machine in cloud.machines()]
    for machine in left:
        print(f"left behind: {machine}", flush=True)
    return len(left)


def live_figures() -> dict[str, float]:
    """Return the figures."""
    with ExitStack() as stack:
        clouds = [stack.enter_context(loopback(name, minute=1.0)) for name in ("aws", "gcp")]
        begun = time.monotonic()
        plain = run_search(clouds, "search", str(TRIALS))
        minutes = (time.monotonic() - begun) / 60
        left = count_left(clouds)
        run_search(clouds, "interrupted", "15")
        left += count_left(clouds)
        first = {"first": str(plain["type"])}
        for cloud, code in zip(clouds, CODES, strict=True):
            create = cloud.api.ACTIONS.get("create", "create")
            script = RefuseLaunches("refuse", create, math.inf, code=code, fields=first)
            cloud.api.scripts.append(script)
        refused = run_search(clouds, "search", str(TRIALS))
        assert int(refused["refused"]) > 0  # type: ignore[call-overload]
        left += count_left(clouds)
    for found in (plain, refused):
        print(found, flush=True)
        assert found["configurations"] == CONFIGURATIONS
    overhead = max(float(one["booked"]) / float(one["said"]) for one in (plain, refused))  # type: ignore[arg-type]
    return {
        "live_trials": max(float(plain["regret"]), float(refused["regret"])),  # type: ignore[arg-type]
        "live_left_behind": float(left),
        "live_overhead": overhead,
        "live_refusals_ok": float(plain["best"] == refused["best"]),
        "live_minutes": minutes,
    }


if __name__ == "__main__":
    print(live_figures())
