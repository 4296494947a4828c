"""Results that are kept in a store, ``-o NAME@URI``, behind handles that outlive their cluster.

An object is a line of JSON with the sizes of the value's segments, and then the segments.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError, SkyTransferError
from jupyter_sky.base.requests.cell_options.values import SCRATCH, CellOutput, CellUpload
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.execution.files.scratch import place_of_scratch, scratch_of
from jupyter_sky.execution.files.transfer import TransferReporter, format_size, load_value
from jupyter_sky.execution.files.upload_targets import EngineFiles, UploadTarget
from jupyter_sky.execution.files.uploads import book_upload, choose_worker
from jupyter_sky.machines.engines.wire.engine_requests import Pack, Spool, Unspool
from jupyter_sky.machines.engines.wire.values import Parcel
from jupyter_sky.machines.storage.datasets.writing import write_object
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.object_transfer import TransferItem
from jupyter_sky.machines.storage.stores.part_worker import read_part
from jupyter_sky.machines.storage.stores.store import PART_SIZE, StoredObject, part_count, part_span
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferOptions

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import Placement

HEADER_BYTES = 4096
"""Most bytes that are read for the first line of an object."""


class StoredValue:
    """A value that a cell has left in a store. Its attributes, and `fetch`, bring it here once.

    Attributes
    ----------
    digest
        Of what was pickled: equal values may have the same one. Empty where nobody knows.
    nbytes
        Size of the object.
    module
        Top-level module of its type, where it is known.

    Examples
    --------
    >>> model.fetch()  # doctest: +SKIP
    """

    def __init__(
        self, name: str, uri: StorageUri, version: str, described: dict[str, Any], trusted: bool
    ) -> None:
        self.name, self.uri, self.trusted = name, uri, trusted
        self.type = str(described["type"])
        self.digest, self.nbytes = str(described.get("digest", "")), described.get("nbytes", 0)
        self.module = str(described.get("module", ""))
        self._version, self._repr = version, str(described["repr"])
        self._value: tuple[Any, ...] = ()

    def fetch(self) -> Any:
        """Bring a copy of the value here; the second call returns the same one.

        Raises
        ------
        SkyStorageError
            The object is gone, or another one by now.
        SkyTransferError
            It cannot be opened here.
        """
        if not self._value:
            parcel = _read_parcel(self.uri, self._version)
            self._value = (load_value(parcel, self.name, self.trusted and Sky.load().trust),)
        return self._value[0]

    def is_there(self) -> bool:
        """Return whether the store has the object in the version that was written."""
        try:
            return open_store(self.uri).stat(self.uri.key).version == self._version
        except SkyError:
            return False

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON from which `from_json` makes an equal handle."""
        return {
            "name": self.name,
            "uri": str(self.uri),
            "version": self._version,
            "type": self.type,
            "repr": self._repr,
            "digest": self.digest,
            "nbytes": self.nbytes,
            "module": self.module,
            "trusted": self.trusted,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StoredValue:
        """Return the handle of what `to_json` gave."""
        uri = StorageUri.parse(data["uri"])
        return cls(data["name"], uri, data["version"], dict(data), data["trusted"])

    def __repr__(self) -> str:
        return _("{repr} in {uri}").format(repr=self._repr, uri=self.uri)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.fetch(), name)

    def __reduce__(self) -> Any:
        raise SkyTransferError(
            _("{name} is a handle of a value in {uri}").format(name=self.name, uri=self.uri),
            hint=_("bring it here first: {name} = {name}.fetch()").format(name=self.name),
        )


def output_uri(output: CellOutput, folder: Path | None = None) -> StorageUri:
    """Return the address of the object that a value becomes.

    Examples
    --------
    >>> str(output_uri(CellOutput("model", True, "s3://mine/runs/7/")))
    's3://mine/runs/7/model.value'
    """
    uri = StorageUri.parse(output.uri, folder)
    return uri.child(f"{output.name}.value") if uri.is_folder else uri


def _place_value(output: CellOutput, placement: Placement) -> StorageUri:
    """Return the address of a value, in the scratch of its cluster's region if none is given."""
    if output.uri != SCRATCH:
        return output_uri(output, Path.cwd())
    prefix = scratch_of(place_of_scratch(placement.row.cloud, placement.row.region))
    return prefix.child(f"{output.name}-{uuid.uuid4().hex[:8]}.value")


def store_value(
    placement: Placement,
    rank: int,
    output: CellOutput,
    described: dict[str, Any],
    trusted: bool,
    reporter: TransferReporter,
) -> Any:
    """Have an engine put a value into a store; return its handle.

    Where the output is `large_only`, a value that fits a message is returned as it is.

    Parameters
    ----------
    described
        Reference, type and short text of the value, as the engine gives them.

    Raises
    ------
    SkyTransferError
        It cannot be pickled there; it stays on the engine.
    """
    uri, link = _place_value(output, placement), placement.cluster.connection
    if len(placement.ranks) > 1:
        uri = uri.root.child(f"{uri.key}.{rank}")
    pack = Pack(output.name, as_data=not trusted, ref=described["ref"])
    parcel = link.ask_engine(rank, pack).described
    if why := parcel.get("unpicklable"):
        raise SkyTransferError(f"-o {output.name}: {str(why).splitlines()[0]}")
    store = open_store(uri)
    if "inline" in parcel:
        data = Parcel.from_inline(parcel)
        if output.large_only:
            return load_value(data, output.name, trusted)
        written = write_object(store, uri.key, _header(data.sizes) + data.to_bytes())
    else:
        target = UploadTarget(CellUpload(output.name, str(uri)), uri, store)
        written = _upload(target, placement, rank, parcel, reporter)
    reporter.note(
        _("{name}: {nbytes} kept in {uri}").format(
            name=output.name, nbytes=format_size(written.size), uri=uri
        )
    )
    facts = {"nbytes": written.size, **{k: parcel.get(k, "") for k in ("digest", "module")}}
    return StoredValue(output.name, uri, written.version, described | facts, trusted)


def _upload(
    target: UploadTarget,
    placement: Placement,
    rank: int,
    parcel: dict[str, Any],
    reporter: TransferReporter,
) -> StoredObject:
    """Upload a value from the machine of its engine, by way of a file there."""
    link = placement.cluster.connection
    header = _header(parcel["sizes"]).decode()
    file = link.ask_engine(rank, Spool(parcel["ref"], header))
    try:
        path = PurePosixPath(file.path)
        found = StoredObject(path.name, file.size, file.version)
        start_worker, write_store = choose_worker(target, placement, rank)
        show = reporter.progress(target.option.path)
        transfer = Transfer(
            EngineFiles(path.parent, {found.key: found}),  # type: ignore[arg-type]
            target.store,
            [TransferItem(found, target.uri.key)],
            options=TransferOptions(start_worker=start_worker, write_store=write_store),
            on_progress=lambda progress: show(progress.bytes_done, found.size),
        )
        try:
            result = transfer.run()
        finally:
            book_upload(target, placement, transfer, start_worker)
    finally:
        link.ask_engine(rank, Unspool(parcel["ref"]))
    return result.objects[target.uri.key]


def _header(sizes: list[int]) -> bytes:
    return json.dumps({"sizes": sizes}).encode() + b"\n"


def _read_parcel(uri: StorageUri, version: str) -> Parcel:
    """Read the object of a value, of the version that was written."""
    store, connections = open_store(uri), Connections()
    there = store.stat(uri.key)
    found = StoredObject(there.key, there.size, version or there.version)
    first = min(HEADER_BYTES, found.size)
    start = bytes(read_part(store.read(found, part_span(1, first, first)), connections))
    line, newline, __ = start.partition(b"\n")
    while not newline and first < found.size:  # a value with very many segments
        first = min(first * 16, found.size)
        start = bytes(read_part(store.read(found, part_span(1, first, first)), connections))
        line, newline, __ = start.partition(b"\n")
    try:
        sizes = json.loads(line)["sizes"]
    except (ValueError, KeyError, TypeError):
        raise SkyTransferError(
            _("{uri} is not a value that -o NAME@URI has kept").format(uri=uri)
        ) from None
    parcel, skipped = Parcel.empty(sizes), len(line) + 1
    for number in range(1, part_count(found.size, PART_SIZE) + 1):
        span = part_span(number, found.size, PART_SIZE)
        data = memoryview(read_part(store.read(found, span), connections))
        begin = max(0, skipped - span.start)
        parcel.fill(span.start + begin - skipped, [data[begin:]])
    return parcel
