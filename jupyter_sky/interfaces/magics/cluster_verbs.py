"""Verbs for clusters, and for the variables on them."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import split_names
from jupyter_sky.base.requests.quantities import format_duration, format_size
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import option, rest, word
from jupyter_sky.interfaces.magics.declaration import NOTEBOOK, verb
from jupyter_sky.machines.engines.controller.activity import notebook_name

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.fetching import FetchedPaths, FetchedValue

_ONE = word("[CLUSTER]", "Cluster; the notebook's own unless given.", "cluster")
_WHERE = option(
    "-c --cluster", "CLUSTER", "The notebook's own unless given.", "-c train", "cluster"
)


def _parse_rank(text: str, flag: str) -> int:
    if not text.isdecimal():
        raise SkyUsageError(
            _("{flag} {text}: not a rank").format(flag=flag, text=text),
            hint=_("such as {flag} 1").format(flag=flag),
        )
    return int(text)


@verb("status", "status", word("[CLUSTER]", "Cluster to list; all unless given.", "cluster"))
def status(cluster: str | None = None) -> Any:
    """List the clusters that are up."""
    from jupyter_sky.interfaces.api import clusters

    return clusters.status(cluster)


@verb("up", "up -c train --cpus 2", rest("[OPTIONS]", "Options as after %%sky."))
def up(options: Sequence[str]) -> Any:
    """Bring a cluster up, or find one that satisfies the options."""
    from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.interfaces.api import clusters

    given = parse_cell_line(shlex.join(options), Sky.load().aliases)
    _check_cluster_options(options)
    cluster = clusters.up(given.cluster, idle=given.idle, **given.resources.labels())
    return clusters.status(cluster.row.name)


def _check_cluster_options(options: Sequence[str]) -> None:
    """Refuse options that are for cells: a cluster would ignore them.

    Raises
    ------
    SkyUsageError
        Names the first of them.
    """
    from jupyter_sky.base.requests.cell_options.parsing import is_option, written_options

    words = options if not options or is_option(options[0]) else options[1:]  # without an alias
    for use in written_options(words):
        if use.option.group != "Resources" and use.option.dest not in ("cluster", "idle"):
            raise SkyUsageError(
                _("%sky up: {flag} is for cells, not for clusters").format(flag=use.flag),
                hint=_("give it in the cell: %%sky {example}").format(example=use.option.example),
            )


@verb(
    "down",
    "down train",
    word("[CLUSTER]", "Cluster to end; those of this notebook unless given.", "cluster all"),
    option("--all", "", "End all clusters, also those that others started."),
    option("--yes", "", "Do not ask, although others use some of them."),
)
def down(cluster: str | None, all: bool, yes: bool) -> None:
    """End a cluster, the clusters of this notebook, or all."""
    from jupyter_sky.interfaces.api.confirmation import end_with_confirmation

    everything = all or cluster == "all"
    if all and cluster not in (None, "all"):
        raise SkyUsageError(
            _("%sky down {cluster} --all: one or all?").format(cluster=cluster),
            hint=_("%sky down {cluster}, or %sky down --all").format(cluster=cluster),
        )
    outcome = end_with_confirmation(
        None if everything else cluster, everything, yes, "%sky down --all --yes"
    )
    for name, place in outcome.ended:
        print(_("ended: {name} ({place})").format(name=name, place=place))
    for name, reason in outcome.spared:
        print(
            _("not ended: {name}: {reason}").format(name=name, reason=reason)
            + ("" if everything else _("; %sky down {name} ends it").format(name=name))
        )
    if not (outcome.ended or outcome.spared or outcome.failed):
        print(_no_clusters_text(everything))
    outcome.raise_for_failures()


def _no_clusters_text(everything: bool) -> str:
    from jupyter_sky.execution.sessions import session as sessions

    others = [] if everything else sessions.current().store.live_clusters()
    if not others:
        return _("no cluster is up")
    names = ", ".join(f"{row.name} ({notebook_name(row.notebook)})" for row in others)
    return _(
        "no cluster of this notebook is up; of others: {names}. %sky down --all ends those, too"
    ).format(names=names)


@verb(
    "stop",
    "stop train",
    word("CLUSTER", "Cluster whose machines power off; their disks are kept.", "cluster"),
    option("--yes", "", "Do not ask."),
)
def stop(cluster: str, yes: bool) -> None:
    """Stop a cluster: files on it stay, and its disk goes on costing."""
    from jupyter_sky.interfaces.api import clusters as stopped_clusters

    print(stopped_clusters.stop(cluster, yes=yes))


@verb(
    "start",
    "start train",
    word("CLUSTER", "Cluster that was stopped.", "cluster"),
)
def start(cluster: str) -> Any:
    """Start a stopped cluster, with its files and without its variables."""
    import sys

    from jupyter_sky.interfaces.api import clusters as stopped_clusters

    shown: list[str] = []

    def show(stage: str, detail: str) -> None:
        if (text := f"☁ {stage} {detail}".rstrip()) not in shown:
            shown.append(text)
            print(text, file=sys.stderr, flush=True)

    return stopped_clusters.start(cluster, show)


@verb(
    "extend",
    "extend train 1h",
    word("[CLUSTER]", "Cluster to keep; the only one of this notebook unless given.", "cluster"),
    word("TIME", "Time from now on, such as 1h."),
)
def extend(cluster: str | None, time: str) -> None:
    """Keep a cluster that is not used for some time."""
    from jupyter_sky.base.requests.resources import format_duration
    from jupyter_sky.interfaces.api import clusters

    left = clusters.extend(cluster, time)
    print(
        _("{cluster} stays up for {left}, used or not").format(
            cluster=cluster or _("the cluster"), left=format_duration(left)
        )
    )


@verb("reap", "reap", option("--here", "", "Look only where something was launched from here."))
def reap(here: bool) -> Any:
    """End machines that belong to no cluster."""
    from jupyter_sky.interfaces.api import clusters

    return clusters.reap(everywhere=not here)


@verb(
    "ssh",
    "ssh train --node 1",
    _ONE,
    word("[COMMAND ...]", "Command to run there in place of a shell, after --."),
    option("--node", "RANK", "Node; 0, the head, unless given.", "--node 1", parse=_parse_rank),
)
def ssh(cluster: str | None, commands: Sequence[str], node: int | None) -> None:
    """Open a shell on a node of a cluster; in a notebook, show the command that does."""
    import os
    import sys

    from jupyter_sky.execution.sessions import session as sessions
    from jupyter_sky.interfaces.api import clusters

    text = " ".join(commands) if len(commands) == 1 else shlex.join(commands)
    line = clusters.ssh_command(cluster, node or 0, text)
    if not sessions.current().everywhere or not (text or sys.stdin.isatty()):
        print(line)
        return
    sessions.close()
    sys.stdout.flush()
    words = shlex.split(line)
    os.execvp(words[0], words)  # its exit code is that of the command


@verb("vars", "vars train", _ONE)
def vars(cluster: str | None) -> Any:
    """List the variables on a cluster."""
    from jupyter_sky.interfaces.api import variables

    return variables.vars(cluster)


@verb("put", "put x y", word("NAME ...", "Variables.", "local-name"), _WHERE, only=NOTEBOOK)
def put(names: Sequence[str], cluster: str | None) -> None:
    """Send variables to a cluster."""
    from jupyter_sky.interfaces.api import variables

    variables.put(*split_names(",".join(names)), cluster=cluster)


@verb(
    "get",
    "get out/model.pt results/",
    word(
        "NAME ...",
        "Variables, or files by path; after a path, where to.",
        "remote-name remote-path",
    ),
    _WHERE,
    option("--to", "DEST", "File or folder for files.", "--to results/", "path"),
    option("--force", "", "Replace files that are here and differ."),
    option("--on", "RANK", "Node of the files; 0 unless given.", "--on 1", parse=_parse_rank),
)
def get(
    names: Sequence[str], cluster: str | None, to: str | None, force: bool, on: int | None
) -> None:
    """Bring variables, files or folders of a cluster here."""
    from jupyter_sky.execution.cells.fetching import (
        FetchRequest,
        check_destination,
        fetch,
        split_destination,
    )
    from jupyter_sky.execution.sessions import session as sessions

    words, last = (names, None) if to else split_destination(names)
    listed = tuple(split_names(",".join(words)))
    request = FetchRequest(listed, cluster, to or last, force, on or 0)
    session = sessions.current()
    if last is not None:
        check_destination(session, request)
    with TransferLine() as line:
        found = fetch(session, request, line.show, print)
    for text in describe(found, session.folder):
        print(text)


@verb(
    "setup",
    "setup aws",
    word("[CLOUD]", "All that can launch machines unless given.", "cloud"),
    option("--policy", "", "Print the least rights of its user, as JSON to paste."),
    option("--list", "", "List the steps, also in a terminal."),
)
def setup(cloud: str | None, policy: bool, list: bool) -> Any:
    """List the steps after which cells can rent machines of a cloud; a shell walks through them."""
    import sys

    from jupyter_sky.clouds import is_rented
    from jupyter_sky.execution.sessions import session as sessions
    from jupyter_sky.interfaces.api import guided_setup

    guided_setup.check_setup_name(cloud)
    if policy:
        return _print_policy(cloud)
    is_walked = sessions.current().everywhere and sys.stdin.isatty() and not list
    if cloud is None or not is_walked or not is_rented(cloud):
        return guided_setup.setup(cloud)
    from jupyter_sky.interfaces.api.confirmation import ask

    guided_setup.GuidedSetup(cloud, ask, lambda text: print(text, flush=True)).run()
    return None


def _print_policy(cloud: str | None) -> None:
    from jupyter_sky.interfaces.api.guided_setup import policy_text

    if cloud is None:
        raise SkyUsageError(
            _("setup --policy: of which cloud?"), hint=_("name one: setup CLOUD --policy")
        )
    text = policy_text(cloud)
    if not text:
        raise SkyUsageError(
            _("setup {cloud} --policy: its keys have no rights of their own").format(cloud=cloud),
            hint=_("setup {cloud} --list shows what they need").format(cloud=cloud),
        )
    print(text)


@verb("check", "check")
def check() -> Any:
    """Show which clouds can be used from here."""
    from jupyter_sky.interfaces.api import clusters

    return clusters.check()


@verb("doctor", "doctor")
def doctor() -> Any:
    """Show what is wrong here, with the command that mends each."""
    from jupyter_sky.interfaces.api import doctor as diagnosis

    return diagnosis.doctor()


# -- Line that shows how far a transfer of files is, and the sentences that say what has come -----

FIRST_SECONDS = 1.0
"""Quicker transfers show nothing but their end."""
PERIOD_SECONDS = 0.5


class TransferLine:
    """Progress of a transfer, in the outputs of a notebook's cell or on a terminal."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._shown_at = self._begun + FIRST_SECONDS - PERIOD_SECONDS
        self._handle: Any = None

    def __enter__(self) -> TransferLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._write("" if kind is None else _("not all has come"))

    def show(self, done: int, total: int) -> None:
        """Show the bytes done of those in all, now and then."""
        now = time.monotonic()
        if now - self._shown_at < PERIOD_SECONDS:
            return
        self._shown_at = now
        self._write(progress_text(done, total, now - self._begun))

    def _write(self, text: str) -> None:
        from IPython import get_ipython  # type: ignore[attr-defined]

        if getattr(get_ipython(), "kernel", None) is None:
            self._handle = True
            print(f"\r{text:60}", end="" if text else "\r", file=sys.stderr, flush=True)
            return
        from IPython.display import display

        content = {"text/plain": text}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def progress_text(done: int, total: int, seconds: float) -> str:
    """Return the progress of a transfer in words.

    Examples
    --------
    >>> progress_text(250_000_000, 1_000_000_000, 5.0)
    '250.0 MB of 1.0 GB, 50.0 MB/s, 0:15 left'
    """
    rate = done / max(seconds, 1e-6)
    left = _(", {total} left").format(total=format_duration((total - done) / rate)) if rate else ""
    return _("{done} of {total}, {rate}/s{left}").format(
        done=format_size(done), total=format_size(total), rate=format_size(rate), left=left
    )


def describe(found: Sequence[FetchedValue | FetchedPaths], folder: Path) -> list[str]:
    """Return a sentence for each variable, file or folder that has come."""
    from jupyter_sky.execution.cells.fetching import FetchedValue
    from jupyter_sky.execution.files.file_transfer import join_names

    lines = []
    for each in found:
        if isinstance(each, FetchedValue):
            lines.append(each.note or _("{name}: a variable here now").format(name=each.name))
            continue
        if each.copied:
            places = join_names([_short(path, folder) for path in each.copied])
            count = (
                ""
                if each.is_file
                else _("{copied_count} files, ").format(copied_count=len(each.copied))
            )
            lines.append(
                _("{name}: {count}{nbytes} brought to {places}").format(
                    name=each.name, count=count, nbytes=format_size(each.nbytes), places=places
                )
            )
        if each.present:
            places = join_names([_short(path, folder) for path in each.present])
            lines.append(
                _("{name}: here already, as it is there: {places}").format(
                    name=each.name, places=places
                )
            )
    return lines


def _short(path: Path, folder: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path
