"""Fetching by ``%sky get``: variables, files and folders of a cluster, to the notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyTransferError, SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.execution.files.file_transfer import (
    FileSource,
    choose_targets,
    copy_files,
    plan_copies,
)
from jupyter_sky.execution.files.transfer import Progress
from jupyter_sky.machines.engines.wire.controller_requests import ListEngines
from jupyter_sky.machines.engines.wire.engine_requests import ListNames

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.session_state import SessionState
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.files.stored_values import StoredValue


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Request for variables and files of a cluster.

    Attributes
    ----------
    names
        Names of variables, paths and patterns.
    cluster
        Name of the cluster; None for the notebook's own.
    to
        File or folder for files; None to keep their places.
    replaces
        Whether files here may be replaced.
    rank
        Rank of the node.
    """

    names: tuple[str, ...]
    cluster: str | None = None
    to: str | None = None
    replaces: bool = False
    rank: int = 0


@dataclass(frozen=True, slots=True)
class FetchedValue:
    """A variable that has been brought; `note` says what else has its name."""

    name: str
    value: Any
    note: str = ""


@dataclass(frozen=True, slots=True)
class FetchedPaths:
    """Files that have been brought, and those that were here already.

    Attributes
    ----------
    is_file
        Whether one file was named.
    nbytes
        Bytes that were brought.
    """

    name: str
    copied: tuple[Path, ...]
    present: tuple[Path, ...]
    is_file: bool
    nbytes: int

    @property
    def value(self) -> Path | list[Path]:
        """The path of one file, or the paths of several."""
        paths = sorted((*self.copied, *self.present))
        return paths[0] if self.is_file else paths


def is_path(name: str) -> bool:
    """Return whether a word can only be a path: what is no name of a variable.

    Examples
    --------
    >>> [is_path(name) for name in ("model", "model.pt", "out/", "./model")]
    [False, True, True, True]
    """
    return not name.isidentifier()


def split_destination(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the names among words, and the destination that follows them.

    As with ``cp``, the last of several words is the destination when the first is a path.

    Examples
    --------
    >>> split_destination(["out/model.pt", "best.pt"]), split_destination(["x", "y"])
    ((['out/model.pt'], 'best.pt'), (['x', 'y'], None))
    """
    if len(words) > 1 and is_path(words[0]):
        return [*words[:-1]], words[-1]
    return [*words], None


def check_destination(session: SessionState, request: FetchRequest) -> None:
    """Refuse a last word that may be meant as one more file to bring.

    Raises
    ------
    SkyUsageError
        It is the name of a file there; says how to write either.
    """
    to = request.to
    if to is None or to.endswith("/") or (session.folder / to).is_dir():
        return
    source = FileSource(session.clusters.find(request.cluster), request.rank)
    if source.find(to).exists:
        one, both = " ".join(request.names), ",".join((*request.names, to))
        raise SkyUsageError(
            _("{to} is a file on the cluster, too: bring it as well, or copy to it?").format(to=to),
            hint=_("both: %sky get {both}; one: %sky get {one} --to {to}").format(
                both=both, one=one, to=to
            ),
        )


def fetch(
    session: SessionState,
    request: FetchRequest,
    progress: Progress = lambda done, total: None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[FetchedValue | FetchedPaths]:
    """Bring variables and files of a cluster to the notebook, in the order of their names.

    Parameters
    ----------
    progress
        Called with the bytes of files done and in all.
    tell
        Called with a sentence when something has to be waited for.

    Raises
    ------
    SkyUsageError
        A name is neither a variable nor a file there; a file here would be replaced.
    """
    if stored := _stored_values(session, request):
        return [_bind_stored(session, *pair) for pair in zip(request.names, stored, strict=True)]
    live = session.clusters.find(request.cluster)
    if not 0 <= request.rank < live.row.nodes:
        raise SkyUsageError(
            _("get: {name} has no engine {rank}").format(name=live.row.name, rank=request.rank),
            hint=_("its engines are 0 to {nodes}").format(nodes=live.row.nodes - 1),
        )
    fetcher = _Fetcher(session, FileSource(live, request.rank), request, progress, tell)
    return [fetcher.fetch(name) for name in request.names]


def _bind_stored(session: SessionState, name: str, stored: StoredValue) -> FetchedValue:
    value = session.namespace[name] = stored.fetch()
    return FetchedValue(name, value)


def _stored_values(session: SessionState, request: FetchRequest) -> Sequence[StoredValue]:
    """Return the handles of values in a store, where all names are such: no cluster is needed."""
    module = sys.modules.get("jupyter_sky.execution.files.stored_values")
    if module is None or request.to is not None:  # no cell has kept any
        return []
    found: list[Any] = [session.namespace.get(name) for name in request.names]
    return found if all(isinstance(each, module.StoredValue) for each in found) else []


@dataclass(frozen=True, slots=True)
class _Fetcher:
    """Steps of one request; its attributes are the arguments of `fetch`."""

    session: SessionState
    source: FileSource
    request: FetchRequest
    progress: Progress
    tell: Callable[[str], None]

    def fetch(self, name: str) -> FetchedValue | FetchedPaths:
        """Bring a variable, or what lies at a path."""
        # a shell has no variables to bind
        if not is_path(name) and self.request.to is None and not self.session.everywhere:
            found = self._fetch_variable(name)
            if found is not None:
                return found
        return self._fetch_files(name)

    def _fetch_variable(self, name: str) -> FetchedValue | None:
        live, has_file = self.source.cluster, self.source.find(name).exists
        engines = live.connection.ask_controller(ListEngines()).engines
        if any(engine["rank"] == self.request.rank and engine["running"] for engine in engines):
            text = _("{name} comes when the cell has ended that runs on {cluster}")
            self.tell(text.format(name=name, cluster=live.row.name))
            if has_file:
                self.tell(_("the file comes at once: %sky get ./{name}").format(name=name))
        found = self.session.variables.fetch(name, live, self.request.rank)
        if found is None:
            return None
        note = _("the variable {name}; the file of that name: %sky get ./{name}")
        return FetchedValue(name, found.value, note.format(name=name) if has_file else "")

    def _fetch_files(self, name: str) -> FetchedPaths:
        live, found = self.source.cluster, self.source.find(name)
        if not found.exists:
            raise _unknown_name(name, live, self.source)
        if not found.files:
            raise SkyTransferError(
                _("{name} is an empty folder on {cluster}").format(name=name, cluster=live.row.name)
            )
        targets = choose_targets(found, self.session.folder, self.request.to)
        planned = plan_copies(targets, None if self.request.replaces else ())
        copy_files(self.source, planned, self.progress)
        nbytes = sum(file.size for file in planned.copies)
        copied = tuple(planned.copies.values())
        return FetchedPaths(name, copied, planned.present, found.is_file, nbytes)


def _unknown_name(name: str, live: ClusterHandle, source: FileSource) -> Exception:
    if is_path(name):
        return source.missing_error(name)
    entries = live.connection.ask_engine(source.rank, ListNames()).names
    known = [entry[0] for entry in entries]
    return SkyUsageError(
        _("get: there is no variable {name!r} on {name2}, and no file of that name").format(
            name=name, name2=live.row.name
        ),
        hint=suggest(name, known)
        if known
        else _("it has no variables; files by path: out/model.pt"),
    )
