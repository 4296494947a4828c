"""Prepared folders, settings, stores, files and messages: none of them may have an effect.

Each try prepares what an attacker could place, runs real processes of this package on it, and
checks canaries: a file that only an attack creates, a socket that only an attack connects to, a
process that only an attack ends, a value that only an attack sets. Messages must be sentences: a
traceback of this package counts as an effect, too.

* ``hostile_folders``: how many were tried;
* ``hostile_effects``: how many had an effect, which is to be 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.hostile_data import DATA  # noqa: E402
from tests.benchmarks.hostile_messages import MESSAGES  # noqa: E402
from tests.benchmarks.hostile_scene import SECONDS, Try, scene  # noqa: E402
from tests.benchmarks.hostile_settings import BY_ROOT, SETTINGS  # noqa: E402


def judge(each: Try, root: Path) -> list[str]:
    """Carry out one try; say what happened that was not to happen."""
    with scene(root) as here:
        try:
            each.do(here)
        except subprocess.TimeoutExpired:
            return [f"nothing was said for {SECONDS:g} s"]
        found = here.effects(each.forbidden)
        if each.expected and each.expected not in here.said:
            found.append(f"{each.expected!r} was not said")
        if found:
            print(here.said, file=sys.stderr)
        return found


def hostile() -> dict[str, float]:
    """Return how many hostile settings, files and messages were tried, and had an effect."""
    tries = [*SETTINGS, *DATA, *MESSAGES]
    if os.name == "posix" and os.getuid() == 0:
        tries += BY_ROOT
    lock, left, effects = threading.Lock(), list(enumerate(tries)), dict[str, list[str]]()
    judged = list[str]()

    def work(folder: Path) -> None:
        while True:
            with lock:
                if not left:
                    return
                number, each = left.pop(0)
            try:
                found = judge(each, folder / f"try-{number}")
            except Exception as error:
                found = [f"it could not be tried: {type(error).__name__}: {error}"]
            judged.append(each.name)
            print(f"{each.name}: {'; '.join(found) or 'no effect'}", file=sys.stderr, flush=True)
            if found:
                effects[each.name] = found

    with tempfile.TemporaryDirectory(prefix="sky-hostile-") as folder:
        threads = [threading.Thread(target=work, args=(Path(folder),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(judged) == len(tries) == len(set(judged))
    return {"hostile_folders": len(judged), "hostile_effects": len(effects)}


def main(**_: object) -> dict[str, float]:
    """Return the figures of this half of `trust` alone."""
    return hostile()
