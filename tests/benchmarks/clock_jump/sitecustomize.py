"""Adjustable clock: `time.time` with an offset that is read from a file.

Processes that have this folder first on their PYTHONPATH, and the file's path in
``SKY_CHAOS_CLOCK``, see another wall-clock time as soon as the file says so. Clocks that nobody can
set (`time.monotonic`) stay as they are, as on a real machine.
"""

import os
import time

_real, _path = time.time, os.environ.get("SKY_CHAOS_CLOCK")
LOOK_SECONDS = 0.2


def _jumping():
    looked, offset = -LOOK_SECONDS, 0.0

    def now() -> float:
        nonlocal looked, offset
        if time.monotonic() - looked > LOOK_SECONDS:
            looked = time.monotonic()
            try:
                with open(_path) as file:
                    offset = float(file.read() or 0.0)
            except (OSError, ValueError):
                offset = 0.0
        return _real() + offset

    return now


if _path:
    time.time = _jumping()
