"""The verbs, as Python calls: what ``%sky`` and ``jupyter sky`` do, they do through these."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cell_options.values import CellInput, CellOptions, CellOutput
from ..errors import SkyUsageError, suggest
from ..executor import session as _sessions
from ..executor.run import SkyRun
from ..ledger.ledger import By, format_rate, format_usd
from ..ledger.report import parse_by, parse_since, short_path
from ..resources import Resources, format_duration, parse_duration
from ..store.store import ClusterRow
from ..tables import Table

if TYPE_CHECKING:
    from ..functions.pool import Pool
    from ..ledger.report import CostReport
    from ..widgets.cost import Cost
    from ..widgets.logs import Log


def run(
    code: str,
    *,
    inputs: Mapping[str, Any] | Iterable[str] = (),
    outputs: Iterable[str] = (),
    background: bool = False,
    cluster: str | None = None,
    name: str | None = None,
    yes: bool = False,
    **labels: Any,
) -> Any:
    """Run code on a cluster, as a ``%%sky`` cell does.

    Parameters
    ----------
    code
        The body of a cell.
    inputs
        Values by their remote names, or names of variables of the notebook.
    outputs
        Names that are bound here afterwards; ``"m!"`` leaves the value there.
    background
        Return the `SkyRun` at once.
    **labels
        Resources, spelled as the options are: ``cpus="4+"``, ``gpus="V100:1"``.

    Returns
    -------
    Any
        The value of the last expression, or the run.

    Examples
    --------
    >>> sky.run("sum(data)", inputs={"data": [1, 2]})  # doctest: +SKIP
    3
    """
    session = _sessions.current()
    named = dict(inputs) if isinstance(inputs, Mapping) else None
    options = CellOptions(
        resources=Resources.parse(**labels),
        cluster=cluster,
        inputs=tuple(CellInput(item, item) for item in inputs),
        outputs=tuple(CellOutput(item.rstrip("!"), item.endswith("!")) for item in outputs),
        background=background,
        name=name,
        yes=yes,
    )
    return session.run(code, options, _display(), values=named)


def up(name: str | None = None, *, idle: str | float | None = None, **labels: Any) -> Pool:
    """Bring a cluster up, or find one that satisfies the request; calls and cells run on it.

    Parameters
    ----------
    name
        What ``%%sky -c NAME`` calls it.
    idle
        Seconds (or ``"1h"``) after which it ends by itself when nobody is there.
    **labels
        Resources, spelled as the options are (``cpus="4+"``), or the words of ``sky.Compute``
        (``accelerator="A100"``, ``nodes=(2, 4)``, ``allocation="spot"``); with either ``worker``,
        ``image`` and ``plugins``.

    Returns
    -------
    Pool
        ``call >> pool`` sends a call there; ``pool.down()`` ends it.

    Examples
    --------
    >>> pool = sky.up("train", cpus="2", idle="1h")  # doctest: +SKIP
    """
    from ..functions.compute import up as start_cluster

    return start_cluster(name, idle, labels)


def down(name: str | None = None, *, yes: bool = False) -> list[str]:
    """End a cluster, those that this notebook started, or all of them.

    Parameters
    ----------
    name
        Its name, or ``"all"``; without one, the clusters that this notebook started, except those
        that others use now.
    yes
        End all without asking, although others started or use some of them.

    Returns
    -------
    list of str
        The names of those that were ended.

    Raises
    ------
    SkyNotEnded
        Some could not be ended; names them. The others have ended.
    SkyUsageError
        Others started or use some of all, and there is nobody to ask.

    Examples
    --------
    >>> sky.down("train")  # doctest: +SKIP
    ['train']
    """
    from ..magics.confirmation import end_with_confirmation

    outcome = end_with_confirmation(
        name if name != "all" else None, name == "all", yes, "sky.down('all', yes=True)"
    )
    outcome.raise_for_failures()
    return [each for each, _ in outcome.ended]


def extend(cluster: str | None, time: str | float) -> float:
    """Keep a cluster that nobody uses for some time from now on.

    Parameters
    ----------
    cluster
        Its name; None for the only one of this notebook.
    time
        Seconds, or words such as ``"1h"``. The last word counts: a shorter time takes a longer one
        back.

    Returns
    -------
    float
        Seconds after which it ends if nobody comes.

    Raises
    ------
    SkyUsageError
        Its machines end before that: the lease of a cloud's machine cannot be extended.

    Examples
    --------
    >>> sky.extend("train", "1h")  # doctest: +SKIP
    3600.0
    """
    from ..executor.extension import extend_cluster as keep

    session = _sessions.current()
    live = session.clusters.find(cluster)
    seconds = parse_duration(time, "time") if isinstance(time, str) else float(time)
    return keep(session.store, live.row, seconds, live.connection.ask_controller)


def reap(everywhere: bool = True) -> Table:
    """End machines that nobody needs, and say what was found.

    What each cloud says is ours is compared with the clusters that are up: machines of a notebook
    that was killed, and such as are past their lease, are ended. What nobody uses and still costs
    (disks, addresses) is deleted.

    Parameters
    ----------
    everywhere
        Ask in all regions, not only where something was launched from here.

    Examples
    --------
    >>> sky.reap()  # doctest: +SKIP
    """
    from ..executor.reaper import reap_machines

    rows = tuple(
        (
            found.cloud,
            found.what,
            found.cluster,
            found.why,
            "gone" if found.gone else f"not ended: {found.error}",
        )
        for found in reap_machines(_sessions.current().clusters.records, everywhere)
    )
    return Table(
        "Reaped", ("cloud", "what", "cluster", "why", "now"), rows, empty="nothing to reap"
    )


def status(cluster: str | None = None) -> Table:
    """List the clusters that are up, what runs on them, and what they cost.

    Parameters
    ----------
    cluster
        Name of one cluster; all of them unless given.

    Returns
    -------
    Table
        A row for each cluster.

    Examples
    --------
    >>> sky.status()  # doctest: +SKIP
    """
    from ..executor.cluster_records import describe_place

    session, rows = _sessions.current(), []
    up, running = session.clusters.records.reconcile(), session.store.runs(status="running")
    for row in up:
        if cluster not in (None, row.name):
            continue
        spent = format_usd(session.ledger.cluster_usd(row.name))
        price = format_rate(row.price)
        age = format_duration(time.time() - row.created)
        idle, users = _use(row, session.clusters.read_activity(row))
        cells = sum(run.cluster == row.name for run in running) or ""
        notebook = short_path(row.notebook)
        place = describe_place(row)
        rows.append((row.name, place, age, cells, price, spent, idle, users, notebook))
    for name, machines in session.clusters.records.find_orphans().items():
        if cluster in (None, name):
            where = f"{machines[0].cloud}, not in the store"
            age = format_duration(time.time() - machines[0].started)
            rows.append((name, where, age, "", "unknown", "unknown", "", "unknown", "unknown"))
    if cluster is not None and not rows:
        names = [row.name for row in up]
        raise SkyUsageError(f"no cluster {cluster!r} is up", hint=suggest(cluster, names))
    return Table(
        "Clusters",
        _STATUS,
        tuple(rows),
        empty="no cluster is up: put %%sky above a cell, or %sky up",
    )


_STATUS = tuple("name,where,age,cells running,price,so far,idle limit,used by,notebook".split(","))


def _use(row: ClusterRow, use: dict[str, Any] | None) -> tuple[str, str]:
    """Say how long a cluster stays up without use, and what uses it or did so last."""
    limit, kept = format_duration(row.idle), row.kept - time.time()
    if use is None:
        return f"{limit}, kept {format_duration(kept)}" if kept > 0 else limit, "not known"
    if use["users"]:
        return limit, ", ".join(use["users"])
    left, last = max(0.0, use["idle_left"]), use["last_use"]
    word = "kept, ends" if kept > 0 else "ends"
    ago = format_duration(last["ago"])
    return f"{limit}, {word} in {format_duration(left)}", f"idle: {last['what']} {ago} ago"


def ssh_command(cluster: str | None = None) -> str:
    """Return the command that opens a shell in a cluster's folder on its head node.

    Raises
    ------
    SkyUsageError
        The cluster is on this machine.
    """
    from ..provisioner.ssh_launch import shell_command

    row = _sessions.current().clusters.find_row(cluster)
    if row.cloud == "local":
        raise SkyUsageError(
            f"cluster {row.name} is on this machine: {Path(row.connection['file']).parents[1]}"
        )
    return shell_command(Path(row.connection["file"]))


def provision_log(cluster: str | None = None) -> str:
    """Return the stages of a cluster's launch, each with when it began and how long it took."""
    from ..provisioner.launch_stages import format_stages
    from ..provisioner.ssh_launch import STAGES

    row = _sessions.current().clusters.find_row(cluster)
    text = format_stages(Path(row.connection["file"]).parent / STAGES)
    return text or f"cluster {row.name} had no stages: it is on this machine\n"


def cost(by: By = "cell", since: str | None = None) -> Cost:
    """Say what was spent, goes on being spent, is to come and was saved; live in a notebook.

    What was saved is counted against the default choice: the cheapest machine on demand in AWS
    us-east-1 that met the same request when the cluster was launched: see
    `jupyter_sky.ledger.baseline`.
    What is to come lasts until the cells that run have ended, by their earlier runs or their
    ``--timeout``, and then until the idle limits. Estimates are marked.

    Parameters
    ----------
    by
        ``cell`` (of this notebook), ``cluster``, ``notebook``, ``cloud`` or ``day``.
    since
        A day (``2026-11-01``), ``today`` or a time ago (``12h``); all there is unless given.

    Returns
    -------
    Cost
        A table to look at, of which ``to_csv(path)`` and ``to_pandas()`` give all lines.

    Examples
    --------
    >>> sky.cost("day", since="30d").to_csv("costs.csv")  # doctest: +SKIP
    """
    return _cost(parse_by(by), since or "all")


def _cost(by: By, since: str, compact: bool = False) -> Cost:
    from ..ledger.report import make_report, report_signature
    from ..widgets.cost import Cost

    session = _sessions.current()
    session.clusters.records.reconcile()  # what has ended meanwhile is billed to its end
    notebook = None if session.everywhere else session.notebook

    def read(by: By, since: str) -> CostReport:
        return make_report(session.store, notebook, by, parse_since(since))

    def set_budget(usd: float | None) -> None:
        session.clusters.budget_monitor.set_budget(usd, "sky.cost()")

    return Cost(read, set_budget, lambda: report_signature(session.store), by, since, compact)


def logs(which: str | int | None = None) -> Log:
    """Return everything that a cell printed on its cluster, by cell number, name or run id.

    It is text; as the last value of a cell it is a view with search that goes on with the run.

    Parameters
    ----------
    which
        Cell number, name or run id; the latest cell unless given.

    Returns
    -------
    Log
        Text, with a view for notebooks.

    Examples
    --------
    >>> sky.logs(7)  # doctest: +SKIP
    >>> [line for line in sky.logs("train").splitlines() if "loss" in line]  # doctest: +SKIP
    """
    from ..widgets.logs import Log

    session = _sessions.current()
    return Log.of(session.history, session.history.find_run(None if which is None else str(which)))


def vars(cluster: str | None = None) -> Table:
    """List the variables that cells have made on a cluster.

    Parameters
    ----------
    cluster
        Name of the cluster; the notebook's own unless given.

    Returns
    -------
    Table
        A row for each variable.

    Examples
    --------
    >>> sky.vars("gpu")  # doctest: +SKIP
    """
    live = _sessions.current().clusters.find(cluster)
    rows = tuple(map(tuple, live.connection.ask_engine(0, "names")["names"]))
    return Table(
        f"Variables on {live.row.name}", ("name", "type", "bytes", "value"), rows, empty="none yet"
    )


def put(*names: str, cluster: str | None = None) -> None:
    """Send variables of the notebook to a cluster.

    Parameters
    ----------
    *names
        Names of the notebook's variables.
    cluster
        Name of the cluster; the notebook's own unless given.

    Examples
    --------
    >>> sky.put("data", "labels", cluster="gpu")  # doctest: +SKIP
    """
    _sessions.current().variables.put(list(names), cluster)


def get(*names: str, cluster: str | None = None) -> Any:
    """Bring variables of a cluster here; return the last one's value.

    Parameters
    ----------
    *names
        Names of variables.
    cluster
        Name of the cluster; the notebook's own unless given.

    Returns
    -------
    object
        Value of the last name.

    Examples
    --------
    >>> model = sky.get("model", cluster="gpu")  # doctest: +SKIP
    """
    return _sessions.current().variables.get(list(names), cluster)


def wait(which: str | None = None, timeout: float | None = None) -> Any:
    """Wait for a background cell (or for all of them) and return its value.

    Parameters
    ----------
    which
        Name or cell number; all background cells unless given.
    timeout
        Seconds to wait at most; without it, to the end.

    Returns
    -------
    object
        Value of the cell.

    Examples
    --------
    >>> sky.wait("train", timeout=60)  # doctest: +SKIP
    """
    session = _sessions.current()
    if which is not None:
        return session.find_handle(which).result(timeout)
    runs = list(session.live.values())
    for pending in runs:
        pending.result(timeout)
    return None


def cancel(which: str) -> None:
    """Stop a background cell, by name or cell number.

    Parameters
    ----------
    which
        Name or cell number.

    Examples
    --------
    >>> sky.cancel("train")  # doctest: +SKIP
    """
    _sessions.current().find_handle(which).cancel()


def handle(which: str) -> SkyRun:
    """Return the handle of a background cell, by name or cell number.

    Parameters
    ----------
    which
        Name or cell number.

    Returns
    -------
    SkyRun
        The run of the cell: its status, outputs and cost.

    Examples
    --------
    >>> sky.handle("train")  # doctest: +SKIP
    """
    return _sessions.current().find_handle(which)


def check() -> Table:
    """Say which clouds can be used from here, and how to mend those that cannot.

    Returns
    -------
    Table
        A row for each cloud: its state and the command that mends it.

    Examples
    --------
    >>> sky.check()  # doctest: +SKIP
    """
    from .. import clouds
    from ..concurrency import run_parallel

    every = run_parallel([partial(clouds.check, name) for name in clouds.reachable_names()])
    rows = [(one.cloud, "yes" if one.usable else "no", one.found, one.fix) for one in every]
    return Table("Clouds", ("cloud", "usable", "found", "to do"), tuple(rows))


def meter() -> Cost:
    """Return the figures of `cost` alone, in one line, live until it is closed.

    Returns
    -------
    Cost
        A widget, live until its ``close()`` is called.

    Examples
    --------
    >>> meter = sky.meter()  # doctest: +SKIP
    >>> meter.close()  # doctest: +SKIP
    """
    return _cost("cell", "all", compact=True)


def _display() -> Any:
    from IPython import get_ipython  # type: ignore[attr-defined]

    from ..widgets.cell_display import for_cell

    shell = get_ipython()
    return for_cell(shell) if shell is not None else None
