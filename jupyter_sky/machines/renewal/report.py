"""Table of what was read from the clouds in the background, and when it will be read again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.machines.renewal.log import read_log
from jupyter_sky.machines.renewal.schedule import Reading, Subject, next_time
from jupyter_sky.machines.renewal.subjects import add_catalog_ages, find_subjects

if TYPE_CHECKING:
    from jupyter_sky.base.tables import Table


def renewal_table(now: float | None = None) -> Table:
    """Return a line for each kind of knowledge that can be read with the accounts here."""
    from jupyter_sky.base.tables import Table

    settings, moment = Sky.load(), time.time() if now is None else now
    folder = Path(settings.data_dir)
    readings = add_catalog_ages(read_log(folder), folder)
    rows = tuple(
        _row(each, readings.get(each, Reading()), moment, settings.renew)
        for each in find_subjects()
    )
    off = "" if settings.renew else _("Sky.renew is off: nothing is read in the background")
    return Table(
        _("Read in the background"),
        ("cloud", _("what"), _("read"), _("next"), _("result")),
        rows,
        off if rows else "",
        _("nothing: there is no account of a cloud here"),
    )


def _row(subject: Subject, last: Reading, now: float, is_on: bool) -> tuple[str, ...]:
    ago = _("{time} ago").format(time=format_duration(now - last.done)) if last.done else _("never")
    left = next_time(subject, last) - now
    due = format_duration(left) if left > 0 else _("due")
    return (
        subject.cloud,
        _(subject.kind),
        ago,
        due if is_on else "",
        "; ".join(filter(None, (last.text, last.invalid))),
    )
