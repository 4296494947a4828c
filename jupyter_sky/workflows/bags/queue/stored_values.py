"""Values that the queue of jobs keeps: applications of bags, and results."""

from __future__ import annotations

from typing import Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.moved_modules import open_pickle
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.bags.queue.application import App
from jupyter_sky.workflows.bags.queue.job_queue import RecordedBag


def load_app(record: RecordedBag) -> tuple[App, dict[str, Any]]:
    """Return the application of a bag, and what belongs to its machines.

    Raises
    ------
    SkyError
        It needs a module that is not here.
    """
    try:
        return load_value(record.app)
    except Exception as error:
        raise SkyError(
            _("the function of bag {name} cannot be read: {kind}: {error}").format(
                name=record.name, kind=type(error).__name__, error=error
            ),
            hint=_("run it in the folder of its modules"),
        ) from error


def load_value(data: bytes) -> Any:
    """Return a value that the queue of jobs has kept."""
    return open_pickle(data)
