"""Process that reads what is due from the clouds, and ends.

Run it as ``python -m jupyter_sky.machines.renewal.worker``. It is started by sessions, goes on
when they end, and does nothing while another one of this user runs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices.source import PriceSource
from jupyter_sky.machines.renewal.log import only_reader, read_log, write_log
from jupyter_sky.machines.renewal.schedule import Reading, Result, Subject, find_due
from jupyter_sky.machines.renewal.subjects import add_catalog_ages, find_subjects, read_subject

_NICENESS = 10
LONGEST_SECONDS = 2 * 3600
"""Time after which the process ends: while it hangs, no other one reads."""


def renew(
    folder: Path,
    known: Mapping[str, PriceSource] | None = None,
    base: Path | None = None,
) -> dict[Subject, Reading]:
    """Read what is due, unless another process does; return the attempts made.

    Parameters
    ----------
    folder
        The data directory.
    known
        Price sources by cloud, all unless given.
    base
        Directory of the catalog that ships, unless it is the package's own.
    """
    made: dict[Subject, Reading] = {}
    with only_reader(folder) as is_only:
        if not is_only:
            return made
        readings = add_catalog_ages(read_log(folder), folder, base)
        for subject in find_due(find_subjects(known), readings, time.time()):
            last = readings.get(subject, Reading())
            # an attempt that is killed counts as a failure, so that it is not made again at once
            text = _("{cloud}: the reading has not ended").format(cloud=subject.cloud)
            unfinished = Reading(time.time(), last.done, last.failures + 1, text)
            write_log(folder, readings | {subject: unfinished})
            made[subject] = _attempt(
                subject, last, partial(read_subject, subject, folder, known, base)
            )
            readings[subject] = made[subject]
            write_log(folder, readings)
    return made


def _attempt(subject: Subject, last: Reading, read: Callable[[], Result]) -> Reading:
    """Read one subject; whatever goes wrong is noted, and the others are read all the same."""
    try:
        found = read()
    except SkyError as error:
        return Reading(time.time(), last.done, last.failures + 1, error.message.splitlines()[0])
    except Exception as error:
        text = f"{subject.cloud}: {type(error).__name__}: {error}"
        return Reading(time.time(), last.done, last.failures + 1, text.splitlines()[0])
    now = time.time()
    return Reading(now, now, 0, found.text, found.invalid)


def main() -> None:
    """Read what is due with the settings of the environment."""
    settings = Sky.load()
    if not settings.renew:
        return
    with suppress(AttributeError, OSError):
        os.nice(_NICENESS)
        signal.alarm(LONGEST_SECONDS)
    renew(Path(settings.data_dir))


if __name__ == "__main__":
    main()
