"""Bags of jobs as Python calls."""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.resources import Resources, format_duration, parse_duration
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.lazy_calls import Function
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.workflows.bags.queue.application import BagSettings
from jupyter_sky.workflows.pipelines.run.names import dated_name

if TYPE_CHECKING:
    from jupyter_sky.workflows.bags.bag_run import BagRun
    from jupyter_sky.workflows.bags.queue.application import App
    from jupyter_sky.workflows.bags.queue.parameters import Where

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def bag(
    app: Callable[..., Any] | str | App,
    jobs: Any = None,
    *,
    name: str | None = None,
    need: int | float | None = None,
    deadline: str | float | None = None,
    budget: float | None = None,
    resources: str | Mapping[str, Any] | Resources = "",
    machines: int | None = None,
    per_machine: int = 1,
    retries: int = 0,
    timeout: str | float | None = None,
    size: str = "",
    idempotent: bool = True,
    image: Any = None,
    plugins: Sequence[Any] = (),
    explore: bool = False,
    slurm: bool | str = False,
    detach: bool = False,
) -> BagRun:
    """Run a function or a command for each of many jobs; return the bag at once.

    Jobs are in a queue on this machine's disk: what has a result never runs again, also when this
    process ends and another goes on (``sky.bag("name").start()``). Machines that are lost are
    replaced, and their jobs run again.

    Parameters
    ----------
    app
        A function, called with the parameters of a job by name; or a shell command in which
        ``{name}`` stands for one. The last line that a command prints is its result, if it is JSON.
        The name of a bag, alone, finds it again.
    jobs
        A list of dicts or of single values, a DataFrame, a generator, the path of a JSON file with
        ranges, or a number of jobs without parameters.
    name
        Of the bag; that of the app with the time unless given.
    need
        Number of jobs that must succeed, or their share; the others are then given up. Unless
        given, all are run and failures are told at the end.
    deadline
        Time from the begin (``"6h"``, or seconds) after which no more jobs begin.
    budget
        USD that it may cost.
    resources
        Of each machine: options as ``%%sky`` has them (``"--cpus 8 --spot"``), labels as a dict, or
        `Resources`.
    machines
        Number of machines; unless given, as many as the deadline needs.
    per_machine
        Jobs that run at once on each.
    retries
        Further attempts after an error of a job's own. Losses of machines are no errors.
    timeout
        Longest time of an attempt.
    size
        Name of a parameter that longer jobs have more of: the longest begin first.
    idempotent
        Whether a straggler may be raced by a copy of itself.
    image, plugins
        As `Compute` has them.
    explore
        Measure jobs on several types of machines first, the largest at the begin; the type with
        the least expected cost under failures runs the rest, and the next bag of this app knows.
        Jobs with ``--nodes`` need the vCPUs of all nodes: fewer and larger machines are measured.
    slurm
        Let the Slurm of this machine run it, as batch jobs; a text has further options of
        ``sbatch``, such as ``"--partition short"``.
    detach
        Carry it out in a process of its own, which goes on when this one ends.

    Returns
    -------
    BagRun
        ``wait()``, ``frame()``, ``cancel()``, ``retry()``, ``more()``.

    Raises
    ------
    SkyUsageError
        There is no job, one has parameters that are not of JSON, or more are needed than there are.

    Examples
    --------
    >>> bag = sky.bag(simulate, [{"salt": 0.1}, {"salt": 0.5}], name="ions")  # doctest: +SKIP
    >>> bag.wait().frame()[["salt", "energy"]]  # doctest: +SKIP
    """
    from jupyter_sky.workflows.bags.queue.parameters import (
        Sweep,
        argument_name,
        read_file,
        read_jobs,
    )

    if jobs is None:
        if not isinstance(app, str):
            raise SkyUsageError(
                _("a bag without jobs"),
                hint=_("sky.bag(function, jobs); sky.bag(NAME) finds one again"),
            )
        return find(app)
    plain = app.local if isinstance(app, Function) else app
    jobs = read_file(Path(jobs)) if isinstance(jobs, str | Path) else jobs
    found = read_jobs(jobs, argument_name(plain) if callable(plain) else "value")
    around = {"image": image, "plugins": tuple(plugins)}
    around["sweep"] = jobs if isinstance(jobs, Sweep) else None
    options = _read_resources(resources)
    _check_burst(options, explore, slurm)
    asked = BagSettings(
        "",
        "",
        options=options,
        machines=None if machines is None else _count(machines, "machines", 1),
        per_machine=_count(per_machine, "per_machine", 1),
        needed=_read_need(need, len(found)),
        deadline=_seconds(deadline, "deadline"),
        budget=_positive(budget, "budget", "USD"),
        retries=_count(retries, "retries", 0),
        timeout=_seconds(timeout, "timeout"),
        idempotent=idempotent,
        size=size,
        notebook=_sessions.current().notebook,
        slurm=_read_slurm(slurm, resources),
        explore=explore,
    )
    run = _start(app, found, name, around, asked)
    return run.start_detached() if detach else run.start()


def sweep(
    app: Callable[..., Any] | str,
    ranges: Mapping[str, Any] | str | Path,
    *,
    where: Where | Sequence[Where] | None = None,
    n: int | None = None,
    seed: int = 0,
    sampler: str | None = None,
    name: str | None = None,
    **settings: Any,
) -> BagRun:
    """Run a function or a command for combinations of parameters; return the bag at once.

    Parameters
    ----------
    app
        As `bag` has it.
    ranges
        For each parameter a list of choices, an interval ``(low, high)``, or one value; or the path
        of a JSON file.
    where
        Constraints: comparisons of parameters (``"z * salt < 2"``), or functions of a dict.
    n, seed
        Number of jobs to draw, and the seed; without `n` all combinations.
    sampler
        ``random`` or ``sobol``, which spreads the samples evenly.
    name, **settings
        As `bag` has them.

    Returns
    -------
    BagRun
        The bag, which runs.

    Examples
    --------
    >>> sky.sweep(train, {"lr": [0.1, 0.01], "seed": range(5)}).wait()  # doctest: +SKIP
    """
    from jupyter_sky.workflows.bags.queue.parameters import make_sweep, read_file

    if isinstance(ranges, str | Path):
        found = read_file(Path(ranges))
    else:
        found = make_sweep(ranges, where, n, seed, sampler)
    return bag(app, found, name=name, **settings)


def read_app(text: str) -> Any:
    """Return the function that ``module:name`` names; any other text is a command.

    Raises
    ------
    SkyUsageError
        There is no such function.

    Examples
    --------
    >>> read_app("math:sqrt")(9.0), read_app("ls -l")
    (3.0, 'ls -l')
    """
    if not _FUNCTION.fullmatch(text):
        return text
    module, __, name = text.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SkyUsageError(
            _("{text}: {error}").format(text=text, error=error),
            hint=_("a function of a module of this folder, as module:name"),
        ) from None


def find(name: str) -> BagRun:
    """Return a bag, without going on with it.

    Raises
    ------
    SkyUsageError
        There is none of that name.
    """
    from jupyter_sky.workflows.bags.bag_run import BagRun

    _register_view()
    return BagRun(_sessions.current(), name)


def newest() -> BagRun:
    """Return the bag that was begun last.

    Raises
    ------
    SkyUsageError
        There is none.
    """
    names = bag_names()
    if not names:
        raise SkyUsageError(
            _("there is no bag of jobs"), hint=_("begin one: sky.bag(function, jobs)")
        )
    return find(names[-1])


def bag_names() -> list[str]:
    """Return the names of the bags, the newest last."""
    from jupyter_sky.workflows.bags.bag_run import open_queue

    queue = open_queue(Path(_sessions.current().config.data_dir))
    try:
        return queue.names()
    finally:
        queue.close()


def bags() -> Table:
    """Return a table of the bags, the newest first."""
    rows = []
    for name in reversed(bag_names()):
        run = find(name)
        try:
            report = run.report()
        finally:
            run.close()
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.made))
        jobs = ", ".join(f"{count} {state}" for state, count in report.states.items())
        rows.append((name, made, jobs, format_duration(report.elapsed), format_usd(report.usd)))
    columns = (_("bag"), _("begun"), _("jobs"), _("time"), _("cost"))
    return Table(_("Bags of jobs"), columns, tuple(rows), empty=_("there is no bag of jobs"))


def _start(
    app: Any, jobs: list[dict[str, Any]], name: str | None, around: dict[str, Any], settings: Any
) -> BagRun:
    """Store a bag, and return its handle."""
    from jupyter_sky.workflows.bags.bag_run import start_bag
    from jupyter_sky.workflows.bags.queue.application import CommandApp, make_app, pickle_app

    _register_view()
    made = make_app(app)
    if not isinstance(made, CommandApp):
        _check_parameters(made, jobs)
    asked = replace(settings, app=made.name, kind=made.kind, recover=_recovers(app))
    name = name or dated_name(made.name[:24], bag_names())
    if not _NAME.fullmatch(name):
        raise SkyUsageError(
            _("a bag cannot be called {name!r}").format(name=name),
            hint=_("a name has letters, digits, '_', '-' and '.'"),
        )
    return start_bag(_sessions.current(), name, asked, pickle_app(made, around), jobs)


def _check_parameters(app: Any, jobs: list[dict[str, Any]]) -> None:
    """Refuse parameters that a function does not take, before any machine is launched."""
    try:
        signature = inspect.signature(app.function)
    except (AttributeError, TypeError, ValueError):  # of some built-in functions nothing is known
        return
    try:
        signature.bind(**jobs[0])
    except TypeError as error:
        raise SkyUsageError(
            _("{app}{signature} cannot be called with {names}: {error}").format(
                app=app.name, signature=signature, names=", ".join(jobs[0]) or "()", error=error
            ),
            hint=_("a job has the arguments of the function by their names"),
        ) from None


def _recovers(app: Any) -> bool:
    return isinstance(app, Function) and app.retry.recover


def _register_view() -> None:
    from jupyter_sky.interfaces.widgets import bag_view  # noqa: F401  # it registers itself


def _read_need(need: int | float | None, jobs: int) -> int | None:
    """Return the number of jobs that must succeed.

    Examples
    --------
    >>> _read_need(0.9, 20), _read_need(3, 20)
    (18, 3)
    """
    if need is None:
        return None
    is_number = isinstance(need, int | float) and not isinstance(need, bool)
    is_share = is_number and isinstance(need, float) and 0 < need < 1
    count = math.ceil(need * jobs - 1e-9) if is_share else need
    if not is_number or count != int(count) or not 1 <= count <= jobs:
        raise SkyUsageError(
            _("need={need!r}: {jobs} jobs are there").format(need=need, jobs=jobs),
            hint=_("a number from 1 to {jobs}, or a share such as 0.9").format(jobs=jobs),
        )
    return int(count)


def _read_slurm(slurm: bool | str, resources: str | Mapping[str, Any] | Resources) -> str | None:
    """Return further options of ``sbatch``; None where clouds run the bag."""
    if slurm is False:
        return None
    from jupyter_sky.workflows.bags.fleet.slurm_commands import batch_options, check_slurm

    check_slurm()
    more = slurm if isinstance(slurm, str) else ""
    asked = parse_cell_line(_read_resources(resources)).resources
    batch_options(asked, None, more)  # what Slurm does not have is said now
    return more


def _check_burst(options: str, explore: bool, slurm: bool | str) -> None:
    """Raise SkyUsageError for a burst policy that nothing would be done of."""
    asked = parse_cell_line(options)
    alone = {"--nodes": asked.resources.nodes > 1, "explore=True": explore}
    alone |= {"slurm": slurm is not False}
    other = next((name for name, value in alone.items() if value), "")
    if asked.burst is not None and other:
        raise SkyUsageError(
            _("a bag with --burst and {other}").format(other=other),
            hint=_("bags burst where each job runs on one machine, and the type is not measured"),
        )


def _seconds(value: str | float | None, name: str) -> float | None:
    if isinstance(value, str):
        return parse_duration(value, name)
    return _positive(value, name, _("seconds"))


def _positive(value: float | None, name: str, unit: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise SkyUsageError(
            _("{name}={value!r}: not a number of {unit} above 0").format(
                name=name, value=value, unit=unit
            )
        )
    return float(value)


def _count(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SkyUsageError(
            _("{name}={value!r}: not a whole number from {least} on").format(
                name=name, value=value, least=least
            )
        )
    return value


def _read_resources(resources: str | Mapping[str, Any] | Resources) -> str:
    """Return what is asked of machines as options of a cell."""
    if isinstance(resources, str):
        parse_cell_line(resources)  # what is not understood is said now
        return resources
    if isinstance(resources, Mapping):
        resources = Resources.parse(**resources)
    return resources.command_line()
