"""``bags`` and ``bags/NAME/...``: bags of jobs, what their jobs gave, and what users wish."""

from __future__ import annotations

import math
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized
from jupyter_sky.interfaces.server.service import NotFound

if TYPE_CHECKING:
    from jupyter_sky.interfaces.server.service import SkyService
    from jupyter_sky.workflows.bags.bag_run import BagRun

MAX_LISTED = 50
"""Bags that are listed, the newest first."""
MAX_JOBS = 1000
"""Jobs of one answer; others follow from another start."""
_BAG = r"bags/([^/]+)"
_SUBMITTED = (
    *("command", "call", "sweep", "jobs", "where", "n", "seed", "sampler", "name", "need"),
    *("deadline", "budget", "resources", "machines", "per_machine", "retries", "timeout", "size"),
    *("explore", "slurm"),
)
"""Keys of a bag that is submitted: those of `sky.bag` and `sky.sweep`."""
_OF_SWEEP = ("where", "n", "seed", "sampler")


def list_bags(service: SkyService) -> dict[str, Any]:
    """Return the newest bags with the number of jobs in each state.

    Returns
    -------
    dict
        ``runs``: name, unix time of the begin, counts by state, USD, whether it is over and whether
        some process carries it out; ``more``: number of older ones.
    """
    from jupyter_sky.workflows.bags.bag_run import BagRun, open_queue

    with closing(open_queue(Path(service.session.config.data_dir))) as queue:
        names = queue.names()
    found = []
    for name in names[: -MAX_LISTED - 1 : -1]:
        with closing(BagRun(service.session, name)) as bag:
            report = bag.report()
            found.append(
                {
                    "name": name,
                    "made": bag.made,
                    "states": report.states,
                    "usd": report.usd,
                    "over": report.reason is not None,
                    "carried_out": report.is_carried_out,
                }
            )
    return {"runs": found, "more": len(names) - len(found)}


def submit(service: SkyService, asked: dict[str, Any]) -> dict[str, Any]:
    """Store a bag and begin it in a process of its own; return it as its view shows it.

    Parameters
    ----------
    asked
        ``command`` or ``call`` (``module:function``), ``sweep`` (ranges by name) or ``jobs``, and
        the settings of `sky.bag`.

    Raises
    ------
    SkyUsageError
        A key is not known, or its value is invalid.
    """
    from jupyter_sky.interfaces.api.jobs import bag, read_app, sweep
    from jupyter_sky.interfaces.widgets.bag_view import describe_bag

    for key in asked:
        if key not in _SUBMITTED:
            raise SkyUsageError(
                _("{key}: not a setting of bags").format(key=key), hint=suggest(key, _SUBMITTED)
            )
    if ("command" in asked) == ("call" in asked):
        raise SkyUsageError(_("a bag needs a command, or a function as call"))
    settings = dict(asked)
    app = settings.pop("command", None) or read_app(str(settings.pop("call", "")))
    ranges, jobs = settings.pop("sweep", None), settings.pop("jobs", None)
    of_sweep = {key: settings.pop(key) for key in _OF_SWEEP if key in settings}
    service.session  # noqa: B018  # opened, for the calls below
    if ranges is not None:
        intervals = {name: _as_range(values) for name, values in dict(ranges).items()}
        run = sweep(app, intervals, detach=True, **of_sweep, **settings)
    else:
        if jobs is None or isinstance(jobs, str):
            raise SkyUsageError(_("a bag without jobs"), hint=_("jobs, a list, or sweep, ranges"))
        run = bag(app, jobs, detach=True, **settings)
    return describe_bag(run)


def _as_range(values: Any) -> Any:
    """Return a range of JSON: ``{"min": 0, "max": 1}`` is an interval, a list has choices."""
    if isinstance(values, dict):
        return (values.get("min"), values.get("max"))
    return values


class BagsHandler(SkyHandler):
    """Handler of the list of bags, and of new ones."""

    @authorized
    async def get(self) -> None:
        """Answer the newest."""
        await self.answer(list_bags, self.service)

    @authorized
    async def post(self) -> None:
        """Begin ``{"command": "simulate {x}", "sweep": {"x": [1, 2]}}``; answer the bag."""
        try:
            asked = self.body()
        except SkyUsageError as error:
            self.refuse(error)
            return
        await self.answer(submit, self.service, asked)


class _BagHandler(SkyHandler):
    """Base of the handlers of one bag."""

    def bag(self, name: str) -> BagRun:
        """Return a bag.

        Raises
        ------
        NotFound
            There is none of that name.
        """
        from jupyter_sky.workflows.bags.bag_run import BagRun

        try:
            return BagRun(self.service.session, name)
        except SkyUsageError as error:
            raise NotFound(error.message, hint=error.hint) from None


class BagHandler(_BagHandler):
    """Handler of a bag's progress."""

    @authorized
    async def get(self, name: str) -> None:
        """Answer it as its view shows it."""
        await self.answer(self._describe, name)

    def _describe(self, name: str) -> dict[str, Any]:
        from jupyter_sky.interfaces.widgets.bag_view import describe_bag

        with closing(self.bag(name)) as bag:
            return describe_bag(bag)


class JobsHandler(_BagHandler):
    """Handler of the jobs of a bag."""

    @authorized
    async def get(self, name: str) -> None:
        """Answer ``?state=failed&start=0``: parameters, results, times and costs of jobs."""
        start = self.number("start", 0)
        await self.answer(self._list, name, self.get_query_argument("state", ""), start)

    def _list(self, name: str, state: str, start: int) -> dict[str, Any]:
        with closing(self.bag(name)) as bag:
            rows = (row for row in bag.records() if state in ("", row["state"]))
            found = [
                {key: _plain(value) for key, value in row.items()}
                for row in islice(rows, start, start + MAX_JOBS)
            ]
        return {"jobs": found, "next": start + len(found)}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; as a text where it has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return repr(value)


class LogHandler(_BagHandler):
    """Handler of the output of a job."""

    @authorized
    async def get(self, name: str) -> None:
        """Answer ``?job=7``: the end of what it has printed."""
        await self.answer(self._describe, name, self.number("job", 0))

    def _describe(self, name: str, job: int) -> dict[str, Any]:
        from jupyter_sky.interfaces.widgets.bag_view import describe_job

        with closing(self.bag(name)) as bag:
            return describe_job(bag, job)


class ActHandler(_BagHandler):
    """Handler of what users wish of a bag."""

    @authorized
    async def post(self, name: str) -> None:
        """Do ``{"verb": "cancel"}``, resume or retry; answer the bag."""
        await self.answer(self._act, name, str(self.body().get("verb", "")))

    def _act(self, name: str, verb: str) -> dict[str, Any]:
        from jupyter_sky.interfaces.widgets.bag_view import act

        return act(self.bag(name), verb, detach=True)


HANDLERS = [
    ("bags", BagsHandler),
    (_BAG, BagHandler),
    (rf"{_BAG}/jobs", JobsHandler),
    (rf"{_BAG}/log", LogHandler),
    (rf"{_BAG}/act", ActHandler),
]
