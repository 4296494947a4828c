"""Values and files between the notebook and the engines of a cluster."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.requests.quantities import format_size as format_size
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.files import build_manifest
from jupyter_sky.machines.engines.wire.code_sources import find_sources, register_sources
from jupyter_sky.machines.engines.wire.data_values import KINDS, decode
from jupyter_sky.machines.engines.wire.engine_requests import (
    Begin,
    Chunk,
    End,
    Fetch,
    FilePiece,
    MissingFiles,
    Pack,
    Packed,
    Same,
    Synced,
)
from jupyter_sky.machines.engines.wire.values import CHUNK_BYTES, INLINE_BYTES, Parcel, chunks
from jupyter_sky.machines.engines.wire.widget_state import open_model, shared_digest

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.machines.engines.wire.auto_inputs import Decision


_RECEIVED: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""Hashes of functions and classes that came from engines."""
WINDOW_CHUNKS = 3
"""Chunks under way at once: enough to keep every hop busy, little enough to hold in memory."""

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""


class RemoteValue:
    """A value that stays on an engine. Later cells on its cluster use it without moving it.

    Examples
    --------
    >>> model.fetch()  # doctest: +SKIP
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        rank: int,
        name: str,
        described: dict[str, Any],
        trusted: bool = True,
    ) -> None:
        self.cluster, self.rank, self.name, self.trusted = cluster, rank, name, trusted
        self.ref = str(described["ref"])
        self.type = str(described["type"])
        self._repr = str(described["repr"])
        self._cannot_come = "unpicklable" in described
        weakref.finalize(self, _release, cluster.connection, rank, self.ref)

    def fetch(self, progress: Progress | None = None) -> Any:
        """Bring a copy of the value here.

        Raises
        ------
        SkyTransferError
            The value cannot be pickled there or unpickled here.
        SkyEngineLost
            The engine that held it is gone.
        """
        link, trusted = self.cluster.connection, self.trusted and Sky.load().trust
        pack = Pack(self.name, as_data=not trusted, ref=self.ref)
        described = link.ask_engine(self.rank, pack).described
        if why := described.get("unpicklable"):
            hint = _("it stays on the cluster") if trusted else _as_data_hint(self.name)
            raise SkyTransferError(str(why).splitlines()[0], hint=hint)
        return receive_value(self.cluster, self.rank, self.name, described, progress, trusted)

    def __repr__(self) -> str:
        return self._repr

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        words = _(
            "{name} is a handle: its value, a {type}, is on cluster {cluster} and cannot be sent. "
            "Use it in a %%sky cell there"
        )
        if not self._cannot_come:
            words = _(
                "{name} is a handle: its value, a {type}, is on cluster {cluster}. Use it in a "
                "%%sky cell there, or bring it here: {name} = {name}.fetch()"
            )
        text = words.format(name=self.name, type=self.type, cluster=self.cluster.row.name)
        raise AttributeError(text, name=name, obj=self)

    def __reduce__(self) -> Any:
        raise SkyTransferError(
            _("{name} is a handle of a value on cluster {name2}").format(
                name=self.name, name2=self.cluster.row.name
            ),
            hint=_("bring it here first: {name} = {name}.fetch()").format(name=self.name),
        )


def _release(link: Any, rank: int, ref: str) -> None:
    if not link.is_lost and not link.client.is_closed and rank in link.client.engines_by_rank:
        link.send_value_request(rank, Packed(ref))


def is_inline(parcel: Parcel) -> bool:
    """Return whether a parcel is small enough to ride with a cell."""
    return parcel.nbytes <= INLINE_BYTES


def send_value(
    cluster: ClusterHandle,
    ranks: Sequence[int],
    name: str,
    parcel: Parcel,
    progress: Progress,
    auto: JsonObject | None = None,
) -> set[Decision]:
    """Send a parcel to engines under a name, unless its content is there already.

    Parameters
    ----------
    auto
        Offer of ``--auto`` in JSON, which may yield to an engine's own value.

    Returns
    -------
    set of Decision
        Decisions of the engines.
    """
    link = cluster.connection
    offer = auto or {}
    digest = offer.get("digest") or parcel.digest()
    same = Same(name, digest, auto)
    decisions: dict[int, Decision] = {rank: link.ask_engine(rank, same).decision for rank in ranks}
    wanting = [rank for rank in ranks if decisions[rank] in ("bind", "replace")]
    total, done = parcel.nbytes * len(wanting), 0
    for rank in wanting:
        identity = f"in-{name}-{digest}"
        link.ask_engine(rank, Begin(identity, parcel.sizes))
        flying: deque[tuple[Future, int]] = deque()
        for start, stop in [*chunks(parcel.nbytes), (0, 0)]:
            while flying and (len(flying) >= WINDOW_CHUNKS or start == stop):
                future, size = flying.popleft()
                link.reply_content(link.wait(future))
                done += size
                progress(done, total)
            if start < stop:
                views = parcel.views(start, stop)
                future = link.send_value_request(rank, Chunk(identity, start, buffers=views))
                flying.append((future, stop - start))
        sources = find_sources(parcel.codes)
        link.ask_engine(rank, End(identity, name, digest, offer.get("modules", ""), sources))
    return set(decisions.values())


def receive_value(
    cluster: ClusterHandle,
    rank: int,
    name: str,
    described: dict[str, Any],
    progress: Progress | None = None,
    trusted: bool = True,
) -> Any:
    """Return the value that an engine described, fetching it by chunks where it is large.

    Parameters
    ----------
    trusted
        Whether a pickle may be opened. Else only JSON, Arrow and NumPy data are: see
        `jupyter_sky.machines.engines.wire.data_values`.

    Raises
    ------
    SkyTransferError
        It cannot be pickled there, or unpickled here; it stays on the engine.
    """
    trusted = trusted and Sky.load().trust
    if described.get("missing"):
        raise SkyTransferError(
            _("-o {name}: the cell has not made a variable {name!r}").format(name=name)
        )
    if why := described.get("unpicklable"):
        hint = (
            _("keep it on the cluster: -o {name}!").format(name=name)
            if trusted
            else _as_data_hint(name)
        )
        raise SkyTransferError(f"-o {name}: {str(why).splitlines()[0]}", hint=hint)
    sizes = described.get("sizes")
    if not isinstance(sizes, list) or not all(type(n) is int and n >= 0 for n in [0, *sizes]):
        raise SkyTransferError(
            _("{name} cannot be opened here: its sizes are not numbers of bytes").format(name=name)
        )
    if trusted:
        register_sources(described.get("sources", ()))
    if "inline" in described:
        parcel = Parcel.from_inline(described)
    else:
        try:
            parcel = _fetch(cluster, rank, described, progress)
        finally:
            release_packed(cluster, rank, described)
    value = load_value(parcel, name, trusted)
    if isinstance(value, FunctionType | type) and isinstance(described.get("digest"), str):
        _RECEIVED[value] = described["digest"]
    return value


def sent_digest(value: Any, parcel: Parcel) -> str:
    """Return the hash of a value by which an engine knows whether it has it.

    A function that came from an engine is known by its hash there: pickled here, its copies of
    globals would make another of it.
    """
    if model := open_model(value):
        return shared_digest(model)
    known = _RECEIVED.get(value) if isinstance(value, FunctionType | type) else None
    return known or parcel.digest()


def _as_data_hint(name: str) -> str:
    """Return the way in which a value comes from a machine that is not trusted."""
    return _(
        "from a machine that is not trusted only these come back: {kinds}; "
        "convert it in the cell, or keep it on the cluster: -o {name}!"
    ).format(kinds=KINDS, name=name)


def _fetch(
    cluster: ClusterHandle, rank: int, described: dict[str, Any], progress: Progress | None
) -> Parcel:
    link, ref, parcel = cluster.connection, described["ref"], Parcel.empty(described["sizes"])
    total, done = parcel.nbytes, 0
    flying: deque[tuple[Future, int]] = deque()
    ranges: Iterator[tuple[int, int]] = chunks(total)
    while True:
        while len(flying) < WINDOW_CHUNKS and (span := next(ranges, None)):
            future = link.send_value_request(rank, Fetch(ref, *span))
            flying.append((future, span[0]))
        if not flying:
            break
        future, start = flying.popleft()
        reply = link.wait(future)
        link.reply_content(reply)
        done += parcel.fill(start, reply["buffers"])
        reply["buffers"].clear()  # now, not when the garbage collector comes by
        if progress:
            progress(done, total)
    cluster.egress.add(total)
    return parcel


def release_packed(cluster: ClusterHandle, rank: int, described: dict[str, Any]) -> None:
    """Release the value that an engine has packed for fetching, if it has."""
    if "ref" in described:
        _release(cluster.connection, rank, described["ref"])


def wire_size(described: dict[str, Any]) -> int:
    """Return how many bytes a described value has on the wire."""
    return sum(described.get("sizes", ()))


def load_value(parcel: Parcel, name: str, trusted: bool) -> Any:
    """Return the value of a parcel; only as data where pickles may not be opened.

    Raises
    ------
    SkyTransferError
        It cannot be opened here.
    """
    try:
        return parcel.load() if trusted else decode(parcel)
    except SkyTransferError as error:
        raise SkyTransferError(
            _("{name} cannot be opened here: {message}").format(name=name, message=error.message),
            hint=_as_data_hint(name),
        ) from None
    except ModuleNotFoundError as error:
        raise SkyTransferError(
            _(
                "{name} cannot be opened here: it needs the module {name2!r}, which "
                "only the engine has"
            ).format(name=name, name2=error.name),
            hint=_("install {name} here, or keep the value on the cluster: -o {name2}!").format(
                name=error.name, name2=name
            ),
        ) from error
    except Exception as error:
        raise SkyTransferError(
            _("{name} cannot be opened here: {name2}: {error}").format(
                name=name, name2=type(error).__name__, error=error
            ),
            hint=_("keep the value on the cluster: -o {name}!").format(name=name),
        ) from error


def sync_files(
    cluster: ClusterHandle,
    ranks: Sequence[int],
    root: Path,
    paths: Sequence[str],
    progress: Progress,
) -> list[str]:
    """Bring files below `root` to the engines' working folders; return notes for the user."""
    found, folder = build_manifest(root, paths), root.resolve()
    wanted = found.files
    below = [(folder / path).resolve().relative_to(folder).as_posix() for path in paths]
    link = cluster.connection
    for rank in ranks:  # engines of one machine share one folder: the first one's fill does
        missing = link.ask_engine(rank, MissingFiles(wanted)).missing
        total, done = sum(wanted[name][0] for name in missing), 0
        for name in missing:
            size, __, mode = wanted[name]
            with open(root / name, "rb") as file:
                for start in range(0, max(size, 1), CHUNK_BYTES):
                    piece = file.read(CHUNK_BYTES)
                    link.ask_engine(rank, FilePiece(name, start, mode, buffers=(piece,)))
                    done += len(piece)
                    progress(done, total)
        link.ask_engine(rank, Synced(wanted, missing, below))
    return found.notes


# -- Sizes of values that travel between notebook and cluster: announced, refused, shown ----------


@dataclass(frozen=True, slots=True)
class TransferReporter:
    """Callbacks by which a transfer tells its cell how far it is.

    Attributes
    ----------
    report
        Called with a stage and a detail; raises when the cell has been cancelled.
    note
        Called with a sentence for the user.
    announce_bytes, refuse_bytes
        Sizes above which a value is announced, and above which it is refused.
    """

    report: Callable[[str, str], None]
    note: Callable[[str], None]
    announce_bytes: float
    refuse_bytes: float

    def announce(self, name: str, nbytes: int, way: str) -> None:
        """Announce a large value on its way ``to`` or ``from`` the cluster.

        Raises
        ------
        SkyTransferError
            It is too large to be sent without ``--yes``.
        """
        if nbytes > self.refuse_bytes:
            keep = "" if way == "to" else _(", or keep it there: -o {name}!").format(name=name)
            limit = _("{refuse_bytes:g} GB").format(refuse_bytes=self.refuse_bytes / 1e9)
            raise SkyTransferError(
                _("{name} has {nbytes}, more than {limit}: not sent").format(
                    name=name, nbytes=format_size(nbytes), limit=limit
                ),
                hint=_("add --yes to send it all the same{keep}").format(keep=keep),
            )
        if nbytes > self.announce_bytes:
            self.note(
                _("{name}: {nbytes} {way} the cluster").format(
                    name=name, nbytes=format_size(nbytes), way=way
                )
            )

    def progress(self, name: str) -> Progress:
        """Return the callback that shows the progress of a transfer."""

        def show(done: int, total: int) -> None:
            self.report(
                "syncing",
                _("{name} {done} of {total}").format(
                    name=name, done=format_size(done), total=format_size(total)
                ),
            )

        return show
