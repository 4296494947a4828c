"""Verb ``bag``: bags of jobs submitted, looked at, tried again and cancelled."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import RESOURCES, option, parse_path, word
from jupyter_sky.interfaces.magics.declaration import verb

if TYPE_CHECKING:
    from jupyter_sky.workflows.bags.bag_run import BagRun

_BAG = word("NAME", "Name of the bag.", "bag")
_NEWEST = word("[NAME]", "Name of the bag; the newest unless given.", "bag")
_FOLLOW_SECONDS = 1.0


def parse_number(text: str, name: str) -> int:
    """Return a whole number from 0 on.

    Raises
    ------
    SkyUsageError
        It is none.

    Examples
    --------
    >>> parse_number("7", "JOB")
    7
    """
    if not text.isdecimal():
        raise SkyUsageError(
            _("{name} {text}: not a whole number").format(name=name, text=text),
            hint=_("such as {name} 5").format(name=name),
        )
    return int(text)


def parse_amount(text: str, name: str) -> float:
    """Return a number above 0, such as a share or USD.

    Raises
    ------
    SkyUsageError
        It is none.

    Examples
    --------
    >>> parse_amount("0.9", "--need")
    0.9
    """
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise SkyUsageError(
            _("{name} {text}: not a number above 0").format(name=name, text=text),
            hint=_("such as {name} 20").format(name=name),
        )
    return found


@verb("bag", "bag")
def list_bags() -> Any:
    """Show the bags of jobs, with the states of their jobs."""
    from jupyter_sky.interfaces.api.jobs import bags

    return bags()


@verb(
    "bag submit",
    "bag submit train:fit --sweep lr=0.1,0.01 --seed 0:5",
    word("APP", "Shell command with {parameters}, or a function module:name."),
    option("--sweep", "NAME=VALUES", "Values of parameters.", "--sweep lr=0.1,0.01,n=0:5"),
    option("--seed", "VALUES", "Values of the parameter seed.", "--seed 0:5"),
    option("--jobs", "FILE", "Ranges of parameters (.json).", "--jobs j.json", "path", parse_path),
    option("--where", "CONDITION", "What holds for each job.", '--where "z * salt < 2"'),
    option("-n --count", "N", "Number of jobs to draw.", "-n 200", "", parse_number),
    option("--name", "NAME", "Name of the bag.", "--name ions"),
    option(
        "--need", "N", "Jobs that must succeed, or their share.", "--need 0.9", "", parse_amount
    ),
    option("--deadline", "TIME", "Time after which no job begins.", "--deadline 6h"),
    option("--budget", "USD", "Most USD that it may cost.", "--budget 20", "", parse_amount),
    option("--machines", "N", "Number of machines.", "--machines 20", "", parse_number),
    option("--per-machine", "N", "Jobs at once on each.", "--per-machine 4", "", parse_number),
    option("--retries", "N", "Tries after an error of a job.", "--retries 2", "", parse_number),
    option("--timeout", "TIME", "Longest time of an attempt.", "--timeout 2h"),
    option("--explore", "", "Measure types of machines first; the cheapest runs the rest."),
    option("--slurm", "", "Let the Slurm of this machine run it."),
    option("--sbatch", "OPTIONS", "More options of sbatch.", '--sbatch "-p short"'),
    option("--detach", "", "Carry it out in a process of its own, which outlives this one."),
    *RESOURCES,
)
def submit_bag(
    app: str,
    sweep: str | None,
    seed: str | None,
    jobs: Path | None,
    where: str | None,
    count: int | None,
    slurm: bool,
    sbatch: str | None,
    detach: bool,
    **settings: Any,
) -> Any:
    """Run a command or a function for many values of its parameters."""
    from jupyter_sky.base.requests.cell_options.ranges import read_ranges
    from jupyter_sky.interfaces.api.jobs import bag, read_app

    names = {each.dest for each in RESOURCES}
    labels = {name: settings.pop(name) for name in list(settings) if name in names}
    asked = {name: value for name, value in settings.items() if value is not None}
    if "need" in asked and asked["need"] >= 1:
        asked["need"] = int(asked["need"])
    run = bag(
        read_app(app),
        _choose_jobs(jobs, read_ranges(sweep, seed), where, count),
        resources=Resources.parse(**labels),
        slurm=slurm if sbatch is None else sbatch,
        detach=detach,
        **asked,
    )
    if detach:
        print(_("bag {name} goes on by itself: bag status {name} --follow").format(name=run.name))
        return None
    return _follow(run)


def _choose_jobs(jobs: Path | None, ranges: Any, where: str | None, count: int | None) -> Any:
    """Return the jobs of a bag: a file, the values of a sweep, or a number."""
    from jupyter_sky.workflows.bags.queue.parameters import make_sweep

    if jobs is not None and ranges:
        raise SkyUsageError(_("--jobs and --sweep exclude each other"), hint=_("give one of them"))
    if jobs is None and not ranges and count is None:
        raise SkyUsageError(
            _("bag submit: there are no jobs"), hint=_("--sweep lr=0.1,0.01, --jobs FILE or -n 20")
        )
    return jobs or (make_sweep(ranges, where, count) if ranges else count)


@verb(
    "bag status",
    "bag status ions",
    _NEWEST,
    option("-f --follow", "", "Show what changes until it ends."),
)
def show_bag(name: str | None, follow: bool) -> Any:
    """Show progress, expected end and cost of a bag, and the jobs that ended last."""
    from jupyter_sky.interfaces.api.jobs import find, newest

    run = find(name) if name else newest()
    if not follow:
        return run.table()
    for report in run.progress():
        print(report.headline, flush=True)
    return None


@verb(
    "bag logs",
    "bag logs ions 7",
    _BAG,
    word("JOB", "Number of the job.", "", parse_number),
)
def show_job(name: str, job: int) -> None:
    """Print what the last attempt of a job has printed."""
    from jupyter_sky.interfaces.api.jobs import find

    print(find(name).logs(job), end="")


@verb("bag cancel", "bag cancel ions", _BAG)
def cancel_bag(name: str) -> None:
    """Stop what runs and begin nothing more; results are kept."""
    from jupyter_sky.interfaces.api.jobs import find

    find(name).cancel()


@verb(
    "bag resume",
    "bag resume ions",
    _BAG,
    option("--budget", "USD", "New limit of its cost.", "--budget 40", "", parse_amount),
)
def resume_bag(name: str, budget: float | None) -> Any:
    """Go on with a bag whose process has ended, or that has reached a limit."""
    from jupyter_sky.interfaces.api.jobs import find

    return _follow(find(name).start(budget=budget))


@verb("bag retry", "bag retry ions", _BAG)
def retry_bag(name: str) -> Any:
    """Run the jobs that have failed again."""
    from jupyter_sky.interfaces.api.jobs import find

    run = find(name)
    if run.retry() and not run.done():
        return _follow(run)
    return run.table()


@verb(
    "bag export",
    "bag export ions results.csv",
    _BAG,
    word("FILE", "Table of all jobs (.csv).", "path", parse_path),
)
def export_bag(name: str, file: Path) -> None:
    """Write parameters, results, states, times and costs of all jobs."""
    from jupyter_sky.interfaces.api.jobs import find

    find(name).frame().to_csv(file)
    print(file)


def _follow(run: BagRun) -> None:
    """Print the progress of a bag until its end."""
    print(_("bag {name}").format(name=run.name), flush=True)
    shown = 0.0
    try:
        for report in run.progress():
            if time.monotonic() - shown > _FOLLOW_SECONDS or report.reason is not None:
                shown = time.monotonic()
                print(report.headline, flush=True)
    except KeyboardInterrupt:
        print(
            _("it goes on while this process lives; stop it: bag cancel {name}").format(
                name=run.name
            )
        )
        raise
    run.wait()
