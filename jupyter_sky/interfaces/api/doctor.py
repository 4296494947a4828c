"""Diagnosis of this installation: versions, SSH, clouds, clocks, quotas, leftovers, prices."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions import session as _sessions

if TYPE_CHECKING:
    from packaging.markers import Marker

    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.knowledge.tracker.blocks import Block
    from jupyter_sky.knowledge.tracker.quotas import AccountQuota


State = Literal["ok", "look", "wrong"]
LEAST_FREE_BYTES = 2 * 10**9
"""Free room for packages and journals below which the folder of data is full soon."""
LEAST_OPENSSH = (8, 0)
MAX_CLOCK_SECONDS = 60.0
"""Difference of clocks beyond which clouds begin to refuse signatures; AWS does at five minutes."""
_CLOCK_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding of the doctor.

    Attributes
    ----------
    about
        Part of the installation.
    state
        ``ok``, ``look`` where something may be wrong, or ``wrong``.
    text
        What was found.
    fix
        The command that mends it; empty where nothing is to be done.
    """

    about: str
    state: State
    text: str
    fix: str = ""


def doctor() -> Table:
    """Examine this installation; return a table of the findings, with the command for each.

    Returns
    -------
    Table
        A line for each finding.

    Examples
    --------
    >>> sky.doctor()  # doctest: +SKIP
    """
    findings = examine()
    order = ("wrong", "look", "ok")
    rows = sorted(findings, key=lambda one: order.index(one.state))
    wrong = sum(one.state == "wrong" for one in findings)
    note = _("{count} to mend").format(count=wrong) if wrong else _("nothing is wrong")
    columns = (_("about"), _("state"), _("found"), _("to do"))
    table = tuple((one.about, _(one.state), one.text, one.fix) for one in rows)
    return Table(_("Diagnosis"), columns, table, note)


def examine() -> list[Finding]:
    """Return the findings of all examinations, which run side by side."""
    from jupyter_sky.base.concurrency import run_parallel

    examinations: list[Callable[[], Iterable[Finding]]] = [
        examine_versions,
        examine_panel,
        examine_ssh,
        examine_folder,
        examine_clouds,
        examine_quotas,
        examine_refusals,
        examine_leftovers,
        examine_prices,
    ]
    several = run_parallel([partial(_examine, one) for one in examinations])
    return [finding for findings in several for finding in findings]


def _examine(examination: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of an examination; one that fails becomes a finding."""
    about = examination.__name__.removeprefix("examine_")
    try:
        return list(examination())
    except SkyError as error:
        return [Finding(about, "wrong", error.message, error.hint or "")]
    except (OSError, ValueError) as error:
        return [Finding(about, "look", _("not examined: {error}").format(error=error))]


# -- this machine ----------------------------------------------------------------------------


def examine_versions() -> Iterator[Finding]:
    """Compare installed packages with those that this package requires."""
    from importlib.metadata import requires

    python = ".".join(map(str, sys.version_info[:3]))
    problems = list(find_version_problems(requires("jupyter_sky") or ()))
    for text, fix in problems:
        yield Finding(_("versions"), "wrong", text, fix)
    if not problems:
        text = _("Python {version}, all packages fit").format(version=python)
        yield Finding(_("versions"), "ok", text)


def examine_panel() -> Iterator[Finding]:
    """Look for the panel of JupyterLab, where JupyterLab is installed."""
    from importlib.util import find_spec

    if find_spec("jupyterlab") is None:
        return
    from jupyter_sky.base.settings.paths import missing_panel_reason

    if reason := missing_panel_reason():
        fix = _("install Node.js 20, then pip install jupyter_sky")
        yield Finding(_("panel"), "look", reason, fix)
    else:
        yield Finding(_("panel"), "ok", _("JupyterLab has it"))


def examine_ssh() -> Iterator[Finding]:
    """Look for OpenSSH, by which machines are reached, and for what makes its keys."""
    path = shutil.which("ssh")
    missing = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    if path is None or missing:
        fix = _("install OpenSSH: apt install openssh-client, brew install openssh")
        told = _("there is no {name}: no machine can be reached").format(name=missing[0])
        yield Finding("SSH", "wrong", told, fix)
        return
    shown = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=10)
    text = (shown.stderr or shown.stdout).strip().partition(",")[0]
    if (version := read_openssh_version(text)) and version < LEAST_OPENSSH:
        needed = ".".join(map(str, LEAST_OPENSSH))
        told = _("{found}, and {needed} is needed").format(found=text, needed=needed)
        yield Finding("SSH", "wrong", told, _("upgrade OpenSSH"))
    else:
        yield Finding("SSH", "ok", text)


def read_openssh_version(text: str) -> tuple[int, int] | None:
    """Return the version of OpenSSH, of what it says; None for another program.

    Examples
    --------
    >>> read_openssh_version("OpenSSH_9.2p1 Debian-2")
    (9, 2)
    """
    found = re.match(r"OpenSSH\w*_(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def examine_folder() -> Iterator[Finding]:
    """Look at the folder of data: whether it can be written, and its free room."""
    from jupyter_sky.base.requests.quantities import format_size

    session = _sessions.current()
    folder = Path(session.config.data_dir)
    for notice in filter(None, [session.config.notice, *session.store.notices]):
        yield Finding(_("settings"), "look", notice, "jupyter sky config")
    if not session.store.durable:
        text = _("{folder} cannot be written: nothing is remembered").format(folder=folder)
        yield Finding(_("data"), "wrong", text, _("set SKY_DATA_DIR to a folder of yours"))
        return
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        text = _("{free} are free in {folder}").format(free=format_size(free), folder=folder)
        yield Finding(_("data"), "look", text, "jupyter sky storage gc")
    else:
        yield Finding(_("data"), "ok", str(folder))


# -- clouds ----------------------------------------------------------------------------------


def examine_clouds() -> Iterator[Finding]:
    """Ask each cloud that has credentials here whether it takes them, and for its time."""
    from jupyter_sky import clouds
    from jupyter_sky.base.concurrency import run_parallel

    names = [name for name in clouds.reachable_names() if clouds.is_ready(name)]
    for found in run_parallel([partial(clouds.check, name) for name in names]):
        state: State = "ok" if found.usable else "wrong"
        if not found.usable and found.cloud == "ssh":
            state = "ok" if not _has_hosts() else "wrong"
        yield Finding(found.cloud, state, found.found, "" if state == "ok" else found.fix)
    rented = [name for name in names if clouds.is_rented(name)]
    if not rented:
        text = _("no account: cells run on this machine and on machines of your own")
        yield Finding(_("clouds"), "look", text, "jupyter sky setup")
    clocks = [find_facts(name).clock for name in rented]
    yield from examine_clock([clock for clock in clocks if clock])


def _has_hosts() -> bool:
    return Path(_sessions.current().config.hosts).expanduser().is_file()


def examine_clock(addresses: Sequence[str]) -> Iterator[Finding]:
    """Compare this machine's clock with that of the first server that answers."""
    import requests

    has_proxy = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy"))
    for address in addresses:
        begun = time.time()
        try:
            answer = requests.head(address, timeout=_CLOCK_TIMEOUT_SECONDS)
        except requests.RequestException as error:
            through = _(" through the proxy of HTTPS_PROXY") if has_proxy else ""
            text = _("{address} does not answer{through}: {error}").format(
                address=address, through=through, error=type(error).__name__
            )
            fix = _("curl -I {address} says more").format(address=address)
            yield Finding(_("network"), "wrong", text, fix)
            continue
        yield Finding(_("network"), "ok", _("{address} answers").format(address=address))
        yield from judge_clock(answer.headers.get("Date", ""), (begun + time.time()) / 2)
        return


def judge_clock(date: str, now: float) -> Iterator[Finding]:
    """Return the finding about a clock, by the ``Date`` of an answer.

    Examples
    --------
    >>> date = "Fri, 27 Nov 2026 20:00:00 GMT"
    >>> [one.state for one in judge_clock(date, 1795809600.0)]
    ['ok']
    >>> [(one.state, one.text) for one in judge_clock(date, 1795809600.0 - 600)]
    [('wrong', 'this machine is 600 s behind: clouds refuse its signatures')]
    """
    from email.utils import parsedate_to_datetime

    try:
        difference = now - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return
    if abs(difference) <= MAX_CLOCK_SECONDS:
        yield Finding(_("clock"), "ok", _("right within a minute"))
        return
    told = (
        _("this machine is {seconds:.0f} s ahead: clouds refuse its signatures")
        if difference > 0
        else _("this machine is {seconds:.0f} s behind: clouds refuse its signatures")
    )
    fix = "sudo timedatectl set-ntp true"
    yield Finding(_("clock"), "wrong", told.format(seconds=abs(difference)), fix)


def examine_quotas() -> Iterator[Finding]:
    """Ask each account what it may have at once, and tell what it may not have at all."""
    from jupyter_sky import clouds
    from jupyter_sky.base.concurrency import run_parallel

    names = [
        name
        for name in clouds.reachable_names()
        if clouds.is_rented(name)
        and clouds.is_ready(name)
        and clouds.get_launcher(name).has_quotas()
    ]
    for findings in run_parallel([partial(_examine_quotas, name) for name in names]):
        yield from findings


def _examine_quotas(name: str) -> list[Finding]:
    from jupyter_sky.base.settings import paths
    from jupyter_sky.machines.renewal.subjects import read_and_keep_quotas

    try:
        return list(judge_quotas(name, read_and_keep_quotas(name, paths.data_dir())))
    except SkyError as error:
        return [Finding(_("quota"), "look", error.message, error.hint or "")]


def judge_quotas(cloud: str, quotas: Sequence[AccountQuota]) -> Iterator[Finding]:
    """Yield the findings about the quotas of an account.

    Examples
    --------
    >>> from jupyter_sky.knowledge.tracker.quotas import AccountQuota
    >>> none = AccountQuota("aws", "G and VT", 0, "vcpus", "us-east-1", page="https://q")
    >>> some = AccountQuota("aws", "Standard", 32, "vcpus", "us-east-1")
    >>> [(one.state, one.text, one.fix) for one in judge_quotas("aws", [none, some])]
    [('look', 'aws: the quota is 0 for G and VT (us-east-1)', 'ask for more: https://q')]
    >>> [one.text for one in judge_quotas("aws", [some])]
    ['aws: none of 1 quotas is 0']
    """
    empty: dict[str, list[AccountQuota]] = {}
    for quota in quotas:
        if quota.limit == 0:
            empty.setdefault(quota.name, []).append(quota)
    if not empty:
        text = _("{cloud}: none of {count} quotas is 0").format(cloud=cloud, count=len(quotas))
        yield Finding(_("quota"), "ok", text)
        return
    where = [
        f"{name} ({group[0].region or _('everywhere')})"
        if len(group) == 1
        else _("{name} ({count} regions)").format(name=name, count=len(group))
        for name, group in sorted(empty.items())
    ]
    text = _("{cloud}: the quota is 0 for {names}").format(cloud=cloud, names=", ".join(where))
    page = next(iter(empty.values()))[0].page
    yield Finding(_("quota"), "look", text, _("ask for more: {page}").format(page=page))


def examine_refusals() -> Iterator[Finding]:
    """Return the places that refuse for want of a quota or a permission."""
    from jupyter_sky.knowledge import tracker

    for block in tracker.blocked():
        if block.cause in ("quota", "permission"):
            yield describe_block(block)


def describe_block(block: Block) -> Finding:
    """Return the finding about a place that refuses, in the cloud's own words."""
    from jupyter_sky.interfaces.api.failures import console_address

    text = _("{place}: {why}").format(place=block.scope, why=block.why or block.cause)
    fix = console_address(block.place.cloud, block.place.region, block.cause)
    clear = f"jupyter sky tracker clear {block.place.cloud} {block.place.region}".strip()
    return Finding(block.cause, "look", text, _("{fix}; then {clear}").format(fix=fix, clear=clear))


# -- what is left ----------------------------------------------------------------------------


def examine_leftovers() -> Iterator[Finding]:
    """Look for machines without a cluster, those that nobody can ask about, and stopped ones."""
    from jupyter_sky.execution.clusters.stopped_records import reconcile_stopped

    session = _sessions.current()
    orphans = session.clusters.records.find_orphans()
    unknown = list(_find_unknown_machines())
    yield from unknown
    for row in reconcile_stopped(session.clusters.records):
        yield describe_stopped(row)
    for name, machines in orphans.items():
        age = max(0.0, time.time() - min(machine.started for machine in machines)) / 3600
        text = _("{count} machines of {name} on {cloud} belong to no cluster, for {age:.1f} h")
        told = text.format(count=len(machines), name=name, cloud=machines[0].cloud, age=age)
        yield Finding(_("leftovers"), "wrong", told, "jupyter sky reap")
    if not orphans and not unknown:
        yield Finding(_("leftovers"), "ok", _("no machine without a cluster"))


def _find_unknown_machines() -> Iterator[Finding]:
    """Yield the clouds where something was launched and that cannot be asked now."""
    from jupyter_sky import clouds

    for name in clouds.reachable_names():
        if clouds.is_rented(name) and not clouds.is_ready(name):
            try:
                clouds.get(name).list_mine()
            except SkyError as error:
                yield Finding(_("leftovers"), "wrong", error.message, error.hint or "")


def describe_stopped(row: ClusterRow) -> Finding:
    """Return the finding about a stopped cluster, whose disk goes on costing."""
    from jupyter_sky.execution.clusters.stopped_records import describe_stop, stop_cost
    from jupyter_sky.knowledge.ledger.ledger import format_rate

    if under_way := describe_stop(row):
        told = _("{name} was stopped: {what}").format(name=row.name, what=under_way)
        return Finding(_("leftovers"), "look", told, _("look again: jupyter sky status"))
    cost = stop_cost(row)
    ends = time.strftime("%Y-%m-%d %H:%M", time.localtime(cost.ends))
    text = _("{name} is stopped, and its disk costs {price} until {ends}").format(
        name=row.name, price=format_rate(cost.price), ends=ends
    )
    fix = _("jupyter sky start {name}, or jupyter sky down {name}").format(name=row.name)
    return Finding(_("leftovers"), "look", text, fix)


def examine_prices() -> Iterator[Finding]:
    """Look at the age of the prices of clouds that have credentials here."""
    from jupyter_sky import clouds
    from jupyter_sky.base.settings import paths
    from jupyter_sky.clouds.prices.coverage import find_coverage
    from jupyter_sky.knowledge.catalog import load
    from jupyter_sky.knowledge.catalog.loader import user_directory
    from jupyter_sky.machines.renewal.log import read_log

    for row in find_coverage(load(), user_directory()):
        is_usable = row.cloud in clouds.launchable() and clouds.is_rented(row.cloud)
        if not is_usable or not clouds.is_ready(row.cloud) or row.days is None:
            continue
        text = _("prices of {cloud} are {days} days old").format(cloud=row.cloud, days=row.days)
        fix = f"jupyter sky catalog refresh {row.cloud}"
        is_old = row.is_old
        yield Finding(_("prices"), "look" if is_old else "ok", text, fix if is_old else "")
    for last in read_log(paths.data_dir()).values():
        if last.invalid:
            yield Finding(_("prices"), "ok", last.invalid)  # nobody here can mend it


# -- Versions of installed packages against those that are required -------------------------------


def find_version_problems(requirements: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield packages that are missing or of another version, each with the command.

    Packages of an extra may be missing; those that are here have to fit as well.

    Examples
    --------
    >>> list(find_version_problems(["numpy>=1", "no-such-package>=2; python_version > '3'"]))
    [('no-such-package is missing', "pip install 'no-such-package>=2'")]
    """
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import Requirement

    for text in requirements:
        need = Requirement(text)
        marker = need.marker
        is_needed = marker is None or marker.evaluate({"extra": ""})
        command = f"pip install '{need.name}{need.specifier}'"
        try:
            found = version(need.name)
        except PackageNotFoundError:
            if is_needed:
                yield _("{name} is missing").format(name=need.name), command
            continue
        if marker is not None and not is_needed and not _is_for_here(marker):
            continue
        if not need.specifier.contains(found, prereleases=True):
            told = _("{name} is {found}, and {needed} is needed")
            yield told.format(name=need.name, found=found, needed=need.specifier), command


def _is_for_here(marker: Marker) -> bool:
    """Return whether a package is for this machine and Python, with any extra."""
    names = re.findall(r"""extra\s*==\s*["']([^"']+)["']""", str(marker))
    return any(marker.evaluate({"extra": name}) for name in names)
