"""Clusters as Python calls: ``%sky`` and ``jupyter sky`` use these, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError, SkyUsageError, suggest
from jupyter_sky.base.requests.resources import format_duration, parse_duration
from jupyter_sky.base.store.store import ClusterRow
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.execution.clusters.stopped_clusters import (
    find_startable,
    find_stoppable,
    start_cluster,
    stop_cluster,
)
from jupyter_sky.execution.clusters.stopped_records import describe_stop, stop_cost
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.knowledge.ledger.ledger import Ledger, format_rate, format_usd
from jupyter_sky.knowledge.ledger.report import short_path
from jupyter_sky.machines.engines.wire.controller_requests import UseReply

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.pools.pool import Pool


def up(name: str | None = None, *, idle: str | float | None = None, **labels: Any) -> Pool:
    """Bring a cluster up, or find one that satisfies the request; calls and cells run on it.

    Parameters
    ----------
    name
        Name by which ``%%sky -c NAME`` finds it.
    idle
        Seconds (or ``"1h"``) without use after which it ends by itself.
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
    from jupyter_sky.execution.functions.pools.labelled_pools import up as start_cluster

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
    from jupyter_sky.interfaces.api.confirmation import end_with_confirmation

    outcome = end_with_confirmation(
        name if name != "all" else None, name == "all", yes, "sky.down('all', yes=True)"
    )
    outcome.raise_for_failures()
    return [each for each, __ in outcome.ended]


def extend(cluster: str | None, time: str | float) -> float:
    """Keep an unused cluster for some time from now on.

    Parameters
    ----------
    cluster
        Its name; None for the only one of this notebook.
    time
        Seconds, or words such as ``"1h"``. The last call counts: a shorter time takes a longer one
        back.

    Returns
    -------
    float
        Seconds after which it ends if it is not used.

    Raises
    ------
    SkyUsageError
        Its machines end before that: the lease of a cloud's machine cannot be extended.

    Examples
    --------
    >>> sky.extend("train", "1h")  # doctest: +SKIP
    3600.0
    """
    from jupyter_sky.execution.sessions.extension import extend_cluster as keep

    session = _sessions.current()
    live = session.clusters.find(cluster)
    seconds = parse_duration(time, "time") if isinstance(time, str) else float(time)
    return keep(session.store, live.row, seconds, live.connection.ask_controller)


def reap(everywhere: bool = True) -> Table:
    """End machines that nobody needs, and list them.

    The machines that each cloud lists as this user's are compared with the clusters that are up:
    machines of a notebook that was killed, and machines past their lease, are ended. Resources
    that nobody uses and that still cost (disks, addresses) are deleted.

    Parameters
    ----------
    everywhere
        Ask in all regions, not only where something was launched from here.

    Examples
    --------
    >>> sky.reap()  # doctest: +SKIP
    """
    from jupyter_sky.execution.sessions.reaper import reap_machines

    rows = tuple(
        (
            found.cloud,
            found.what,
            found.cluster,
            found.why,
            "gone" if found.gone else _("not ended: {error}").format(error=found.error),
        )
        for found in reap_machines(_sessions.current().clusters.records, everywhere)
    )
    return Table(
        "Reaped", ("cloud", "what", "cluster", "why", "now"), rows, empty=_("nothing to reap")
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
    from jupyter_sky.execution.clusters.cluster_records import describe_place
    from jupyter_sky.execution.clusters.stopped_records import reconcile_stopped

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
        rows.append((row.name, place, price, spent, age, users, idle, cells, notebook))
    for row in reconcile_stopped(session.clusters.records):
        if cluster in (None, row.name):
            rows.append(stopped_row(row, session.ledger))
    for name, machines in session.clusters.records.find_orphans().items():
        if cluster in (None, name):
            where = _("{cloud}, not in the store").format(cloud=machines[0].cloud)
            age = format_duration(time.time() - machines[0].started)
            rows.append((name, where, "unknown", "unknown", age, "unknown", "", "", "unknown"))
    if cluster is not None and not rows:
        names = [row.name for row in up]
        raise SkyUsageError(
            _("no cluster {cluster!r} is up").format(cluster=cluster), hint=suggest(cluster, names)
        )
    return Table(
        "Clusters",
        _STATUS,
        tuple(rows),
        empty=_("no cluster is up: put %%sky above a cell, or %sky up"),
    )


_STATUS = tuple("name,where,price,so far,age,used by,idle limit,cells running,notebook".split(","))


def _use(row: ClusterRow, use: UseReply | None) -> tuple[str, str]:
    """Return in words how long a cluster stays up without use, and its present or last use."""
    limit, kept = format_duration(row.idle), row.kept - time.time()
    if use is None:
        return _("{limit}, kept {kept}").format(
            limit=limit, kept=format_duration(kept)
        ) if kept > 0 else limit, _("not known")
    if use.users:
        return limit, ", ".join(use.users)
    left, last = max(0.0, use.idle_left), use.last_use
    word = _("kept, ends") if kept > 0 else "ends"
    ago = format_duration(last["ago"])
    return _("{limit}, {word} in {left}").format(
        limit=limit, word=word, left=format_duration(left)
    ), _("idle: {last} {ago} ago").format(last=last["what"], ago=ago)


def ssh_command(cluster: str | None = None, node: int = 0, command: str = "") -> str:
    """Return the command that opens a shell in a cluster's folder on one of its nodes.

    Parameters
    ----------
    cluster
        Its name; the only one of this notebook unless given.
    node
        Rank of the node; 0 is the head.
    command
        To run there in place of a shell.

    Raises
    ------
    SkyUsageError
        The cluster is on this machine, or has no such node.
    """
    from jupyter_sky import clouds
    from jupyter_sky.clouds import Machine
    from jupyter_sky.clouds.launches.base import is_reached_by_ssh
    from jupyter_sky.machines.provisioner.ssh_launch import shell_command

    row = _sessions.current().clusters.find_row(cluster)
    if not 0 <= node < row.nodes:
        raise SkyUsageError(
            _("cluster {name} has no node {node}").format(name=row.name, node=node),
            hint=_("its nodes are 0 to {last}").format(last=row.nodes - 1),
        )
    path = Path(row.connection["file"])
    cloud = clouds.get(row.cloud)
    if not is_reached_by_ssh(cloud):
        folder = path.parents[1]
        hint = _("open a terminal here: cd {folder}").format(folder=folder)
        text = _("cluster {name} is on this machine: {parents}")
        raise SkyUsageError(text.format(name=row.name, parents=folder), hint=hint)
    if node == 0:
        return shell_command(path, command=command)
    slots = cloud.recorded_slots([Machine(**machine) for machine in row.machines])
    found = next((slot for slot in slots if slot.rank == node), None)
    if found is None:
        raise SkyError(
            _("node {node} of {name} is not recorded").format(node=node, name=row.name),
            hint=_("it is reached from the head node: ssh {name}").format(name=row.name),
        )
    return shell_command(path, found, command)


def check() -> Table:
    """Check the credentials of all clouds.

    Returns
    -------
    Table
        A row for each cloud: its state and the command that mends it.

    Examples
    --------
    >>> sky.check()  # doctest: +SKIP
    """
    from jupyter_sky import clouds
    from jupyter_sky.base.concurrency import run_parallel

    every = run_parallel([partial(clouds.check, name) for name in clouds.reachable_names()])
    rows = [(one.cloud, "yes" if one.usable else "no", one.found, one.fix) for one in every]
    return Table("Clouds", ("cloud", "usable", "found", _("to do")), tuple(rows))


# -- Clusters stopped and started, as Python calls ------------------------------------------------


def stop(name: str, *, yes: bool = False) -> str:
    """Stop a cluster: its machines power off, their disks are kept, and cost.

    Variables on it are lost, files stay. It ends with the lease of its machines, also stopped.

    Parameters
    ----------
    name
        Its name.
    yes
        Do not ask.

    Returns
    -------
    str
        What it costs now, and until when.

    Raises
    ------
    SkyUsageError
        Its cloud cannot keep stopped machines, cells run on it, or there is nobody to ask.

    Examples
    --------
    >>> print(sky.stop("train"))  # doctest: +SKIP
    """
    from jupyter_sky.interfaces.api.confirmation import confirm

    session = _sessions.current()
    row = find_stoppable(session.clusters, name)
    told = _describe_stop(row)
    if not yes:
        question = _("Stop {name}? Its variables are lost; {told}. [y/N] ").format(
            name=name, told=told
        )
        unasked = SkyUsageError(
            _("stop {name}: {told}").format(name=name, told=told), hint=_("--yes agrees to it")
        )
        confirm(question, unasked, _("it goes on"))
        row = find_stoppable(session.clusters, name)  # a cell may have begun meanwhile
    stop_cluster(session.clusters, row)
    return _("stopped: {name}; {told}. jupyter sky start {name}, or down {name}").format(
        name=name, told=told
    )


def _describe_stop(row: ClusterRow) -> str:
    """Return in words what a cluster costs while it is stopped, and until when it is kept."""
    cost = stop_cost(row)
    ends = time.strftime("%Y-%m-%d %H:%M", time.localtime(cost.ends))
    return _(
        "its disk ({gib:g} GiB) goes on costing about {price} until it is started or ended; it "
        "ends for good at {ends}, by a process on this machine, else by the next notebook here"
    ).format(gib=cost.disk_gib, price=format_rate(cost.price), ends=ends)


def start(name: str, report: Callable[[str, str], None] = lambda stage, detail: None) -> Table:
    """Start a cluster that was stopped, with its files and without its variables.

    Parameters
    ----------
    name
        Its name.
    report
        Called with a stage and a detail, again and again while it comes up.

    Returns
    -------
    Table
        Its row of `status`.

    Raises
    ------
    SkyUsageError
        It is not stopped, or its lease has ended.
    SkyNoCapacity
        Its place has no such machine now; it stays stopped.

    Examples
    --------
    >>> sky.start("train")  # doctest: +SKIP
    """
    session = _sessions.current()
    row = find_startable(session.clusters, name)
    start_cluster(session.clusters, row, report)
    return status(name)


def stopped_row(row: ClusterRow, ledger: Ledger) -> tuple[str, ...]:
    """Return the row of a stopped cluster: the price is that of its disks, once it is off."""
    cost, under_way = stop_cost(row), describe_stop(row)
    left = format_duration(max(0.0, cost.ends - time.time()))
    return (
        row.name,
        describe_place(row),
        format_rate(row.price if under_way else cost.price),
        format_usd(ledger.cluster_usd(row.name)),
        format_duration(time.time() - row.created),
        under_way or _("stopped: jupyter sky start {name}").format(name=row.name),
        _("ends in {left}").format(left=left),
        "",
        short_path(row.notebook),
    )
