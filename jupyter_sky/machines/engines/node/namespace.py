"""Namespace of an engine: variables, references and values in transfer."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import itertools
import sys
import uuid
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.lib.pretty import pretty

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Buffers, Done, Message, Receiver, handles
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node import environment, file_cache, outgoing_files
from jupyter_sky.machines.engines.node.file_cache import FileEntries, FileReceiver, tree_digest
from jupyter_sky.machines.engines.node.files import Workspace
from jupyter_sky.machines.engines.node.platforms import Platform
from jupyter_sky.machines.engines.node.sent_modules import sent_modules
from jupyter_sky.machines.engines.wire.auto_inputs import AutoInput, Decision, read_offers
from jupyter_sky.machines.engines.wire.code_sources import register_sources, with_sources
from jupyter_sky.machines.engines.wire.controller_requests import FilesReply, ReadFiles
from jupyter_sky.machines.engines.wire.data_values import encode
from jupyter_sky.machines.engines.wire.engine_requests import (
    DATA_OP,
    Begin,
    Bind,
    Chunk,
    DecisionReply,
    DescribedReply,
    End,
    Fetch,
    FileParts,
    FilePiece,
    FindPlatform,
    ImportPackages,
    InstallPackages,
    KeepResult,
    ListNames,
    MissingFiles,
    MissingFilesReply,
    MissingModules,
    MissingModulesReply,
    MissingPackageFiles,
    MissingPackages,
    MissingPackagesReply,
    NamesReply,
    Pack,
    Packed,
    PieceReply,
    PlatformReply,
    Same,
    Spool,
    SpoolReply,
    Synced,
    SyncedReply,
    TakeFiles,
    Unspool,
)
from jupyter_sky.machines.engines.wire.values import INLINE_BYTES, Parcel
from jupyter_sky.machines.engines.wire.widget_state import is_shared, open_model, shared_digest

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.node.datasets import EngineDatasets


SPOOL_FOLDER = ".sky-values"
"""Folder in the engine's own with values on their way to a store."""
SHOWN_CHARS = 2000
"""Length to which the text of a value is cut that stays here."""
DATA_PACKAGES = {
    "builtins",
    "collections",
    "datetime",
    "decimal",
    "fractions",
    "numpy",
    "pandas",
    "pathlib",
    "polars",
    "pyarrow",
    "scipy",
    "uuid",
    "__main__",
}
"""Packages whose values are sent home as a cell's result without being asked for.

Others (figures, widgets, models) may do things when they are unpickled; they stay behind a
handle until fetched.
"""


class EngineNamespace(Receiver):
    """Namespace of an engine, values behind references, and parcels in transfer.

    Parameters
    ----------
    namespace
        The variables of cells.
    displayhook
        IPython's hook that keeps the latest results under the names ``_``, ``__`` and ``___``.
    """

    def __init__(self, namespace: MutableMapping[str, Any], displayhook: Any = None) -> None:
        self.namespace, self._displayhook = namespace, displayhook
        self.initial = set(namespace)
        self.refs: dict[str, Any] = {}
        self.parcels: dict[str, Parcel] = {}
        self.sent = SentValues(namespace)
        self.workspace = Workspace()
        self.packages = SentPackages(self.workspace)
        self._numbers = itertools.count(1)
        # part of references: one of another engine must not be found here
        self._engine_id = uuid.uuid4().hex[:8]

    @cached_property
    def datasets(self) -> EngineDatasets:
        """Datasets that cells read here, and files that they write."""
        from jupyter_sky.machines.engines.node.datasets import EngineDatasets

        return EngineDatasets(self.workspace.root)

    # -- with a cell ------------------------------------------------------------------------

    def describe_output(self, name: str, keep: bool, as_data: bool = False) -> JsonObject:
        """Describe a variable for a cell's ``-o``; a small one is included.

        It is packed as `data_values` for a notebook that opens no pickles.
        """
        if name not in self.namespace:
            return {"missing": True}
        if keep:
            return self._keep_reference(self.namespace[name])
        described = self._pack_variable(name, as_data)
        if "unpicklable" in described:  # cells here can still use it, by its handle
            described |= self._keep_reference(self.namespace[name])
        return described

    def identities(self, names: Iterable[str]) -> dict[str, int | None]:
        """Return the ids of the objects that variables have now; None for those that are not."""
        space = self.namespace
        return {name: id(space[name]) if name in space else None for name in names}

    def describe_result(
        self, value: Any, as_data: bool = False, shown: str = ""
    ) -> JsonObject | None:
        """Describe a cell's result; a small and plain one is included.

        The list of all results is none: IPython does not keep it in itself.

        Parameters
        ----------
        shown
            Its text in the cell's outputs, where it has one: a representation may take long, and
            a cell without `%%sky` makes it once.
        """
        if value is self.namespace.get("_oh"):
            return None
        if as_data:
            return self._data_result(value, shown)
        root = type(value).__module__.partition(".")[0]
        small = getattr(value, "nbytes", 0)
        if root in DATA_PACKAGES and isinstance(small, int) and small <= INLINE_BYTES:
            parcel = Parcel.small(value, INLINE_BYTES)
            if parcel is not None:
                return with_sources(parcel.inline(), parcel)
        return self._keep_reference(value, shown)

    def _data_result(self, value: Any, shown: str) -> JsonObject:
        size = getattr(value, "nbytes", 0)
        if isinstance(size, int) and size <= INLINE_BYTES:
            with contextlib.suppress(SkyTransferError):
                parcel = encode(value, "the result")
                if parcel.nbytes <= INLINE_BYTES:
                    return parcel.inline()
        return self._keep_reference(value, shown)

    def _keep_reference(self, value: Any, shown: str = "") -> JsonObject:
        """Store `value` under a number, and describe it."""
        ref = f"{self._engine_id}-{next(self._numbers)}"
        self.refs[ref] = value
        text = _shortened(shown) if shown else _short_repr(value)
        return {"ref": ref, "type": type(value).__qualname__, "repr": text}

    def _dereference(self, ref: str, name: str) -> Any:
        if ref in self.refs:
            return self.refs[ref]
        raise SkyTransferError(
            _("{name} is gone: the engine that held it was restarted").format(name=name),
            hint=_("run the cell that made it again"),
        )

    def _pack(self, value: Any, name: str, as_data: bool = False) -> JsonObject:
        try:
            parcel = encode(value, name) if as_data else Parcel.of(value, name, models=set())
        except SkyTransferError as error:
            return {"unpicklable": str(error)}
        facts: JsonObject = {"digest": "" if as_data else parcel.digest()}
        if parcel.nbytes <= INLINE_BYTES:
            return with_sources(parcel.inline() | facts, parcel)
        held = self._keep_reference(value)
        self.parcels[held["ref"]] = parcel
        facts |= {"sizes": parcel.sizes, "module": type(value).__module__.partition(".")[0]}
        return with_sources(held | facts, parcel)

    def _pack_variable(self, name: str, as_data: bool) -> JsonObject:
        """Pack a variable that the notebook is to have as well."""
        described = self._pack(self.namespace[name], name, as_data)
        if digest := described.get("digest"):
            # functions are packed with their globals, without which they are compared
            self.sent.record(name, digest, state="" if "sources" in described else digest)
        return described

    def bind_inputs(self, inputs: dict[str, JsonObject]) -> dict[str, Decision]:
        """Bind small values that came with a cell; return what was decided on those of --auto."""
        offers = read_offers(inputs)
        # all before the first is opened: one may have a module imported anew that others are from
        decisions: dict[str, Decision] = {
            name: self.sent.decide(name, offered) for name, offered in offers.items()
        }
        for name, described in inputs.items():
            register_sources(described.get("sources", ()))
            if decisions.get(name) not in ("same", "keep"):
                parcel = Parcel.from_inline(described)
                self._bind(name, self._load(parcel, name))
                offered = offers.get(name) or AutoInput(parcel.digest())
                self.sent.record(name, offered.digest, modules=offered.modules)
        return decisions

    def _bind(self, name: str, value: Any) -> None:
        """Bind a variable, or a result of the notebook."""
        number = name[1:] if name[:1] == "_" else ""
        if self._displayhook is None or not (number.isdecimal() or name in ("_", "__", "___")):
            self.namespace[name] = value
            return
        # as if made here: IPython no longer updates the latest results where they are another's
        self._displayhook.shell.push({name: value}, interactive=False)
        if number.isdecimal():
            results = self.namespace["_oh"]
            results[int(number)] = value
            in_order = sorted(results.items())
            results.clear()
            results.update(in_order)
        else:
            setattr(self._displayhook, name, value)

    def _load(self, parcel: Parcel, name: str) -> Any:
        try:
            value = parcel.load()
            enable_figures()
            return value
        except ModuleNotFoundError as error:
            raise SkyTransferError(
                _("{name} cannot be opened on the engine: it needs the module {name2!r}").format(
                    name=name, name2=error.name
                ),
                hint=_("add --pip {name}, or --sync the file that defines it").format(
                    name=error.name
                ),
            ) from error
        except Exception as error:
            raise SkyTransferError(
                _("{name} cannot be opened on the engine: {name2}: {error}").format(
                    name=name, name2=type(error).__name__, error=error
                )
            ) from error
        finally:  # a function that cloudpickle makes leaves a dict there
            self.namespace["__builtins__"] = builtins

    # -- requests ---------------------------------------------------------------------------

    def handle_request(self, content: JsonObject, buffers: Buffers = ()) -> Message:
        """Return the reply to a request."""
        if content.get("op") == DATA_OP:
            return self.datasets.handle_request(content, buffers)
        return self.dispatch(self.decode(content, buffers))

    @handles(Same)
    def _compare(self, request: Same) -> DecisionReply:
        """Return whether a value must be sent; one of --auto may give way to this engine's."""
        if request.offer is not None:
            return DecisionReply(self.sent.decide(request.name, request.offer))
        return DecisionReply("same" if self.sent.has(request.name, request.digest) else "bind")

    @handles(Begin)
    def _begin(self, request: Begin) -> Done:
        self.parcels[request.id] = Parcel.empty(request.sizes)
        return Done()

    @handles(Chunk)
    def _add_chunk(self, request: Chunk) -> Done:
        self.parcels[request.id].fill(request.start, request.buffers)
        return Done()

    @handles(End)
    def _end(self, request: End) -> Done:
        parcel = self.parcels.pop(request.id)
        register_sources(request.sources)
        self._bind(request.name, self._load(parcel, request.name))
        self.sent.record(request.name, request.digest, modules=request.modules)
        return Done()

    @handles(Pack)
    def _pack_for_fetching(self, request: Pack) -> DescribedReply:
        """Pack the value behind a name or a reference for fetching."""
        name, as_data = request.name, request.as_data
        if request.ref is not None:
            value = self._dereference(request.ref, name)
            return DescribedReply(self._pack(value, name, as_data))
        if name not in self.namespace:
            return DescribedReply({"missing": True})
        return DescribedReply(self._pack_variable(name, as_data))

    @handles(Fetch)
    def _fetch(self, request: Fetch) -> PieceReply:
        return PieceReply(self.parcels[request.ref].views(request.start, request.stop))

    @handles(Spool)
    def _spool(self, request: Spool) -> SpoolReply:
        """Write a packed value to a file, from where it is uploaded."""
        from jupyter_sky.machines.storage.stores.file_parts import file_version

        file = self.workspace.root / SPOOL_FOLDER / request.ref
        file.parent.mkdir(mode=0o700, exist_ok=True)
        with file.open("wb") as stream:
            stream.write(request.header.encode())
            for segment in self.parcels[request.ref].segments:
                stream.write(segment)
        status = file.stat()
        return SpoolReply(str(file), status.st_size, file_version(status))

    @handles(Unspool)
    def _unspool(self, request: Unspool) -> Done:
        """Remove the file of a value, and the packed value."""
        (self.workspace.root / SPOOL_FOLDER / request.ref).unlink(missing_ok=True)
        return self._drop_parcel(Packed(request.ref))

    @handles(Packed)
    def _drop_parcel(self, request: Packed) -> Done:
        """Drop a parcel that has been fetched; the value stays."""
        self.parcels.pop(request.ref, None)
        if request.release:
            self.refs.pop(request.ref, None)
        return Done()

    @handles(Bind)
    def _bind_reference(self, request: Bind) -> DecisionReply:
        """Bind a value of this engine to a name; one of --auto may give way to another."""
        name, offer, decision = request.name, request.offer, "bind"
        value = self._dereference(request.ref, name)
        if offer is not None:
            decision = self.sent.decide_reference(name, value, offer)
        if decision != "keep":
            self._bind(name, value)
        return DecisionReply(decision)

    @handles(KeepResult)
    def _keep_result(self, request: KeepResult) -> DescribedReply:
        """Store the result of a cell that the notebook could not unpickle."""
        return DescribedReply(self._keep_reference(self.namespace["_oh"][request.cell]))

    @handles(ListNames)
    def _list_names(self, request: ListNames) -> NamesReply:
        """List the variables that cells have made, with type, size and a short repr."""
        found: list[tuple[str, str, int, str]] = []
        for name, value in list(self.namespace.items()):
            if name in self.initial or name.startswith("_") or name in ("In", "Out"):
                continue
            if type(value).__name__ == "module":
                continue
            size = getattr(value, "nbytes", None)
            size = size if isinstance(size, int) else sys.getsizeof(value, 0)
            found.append((name, type(value).__qualname__, size, _short_repr(value, 60)))
        return NamesReply(found)

    @handles(InstallPackages)
    def _install_packages(self, request: InstallPackages) -> Done:
        """Install packages over the engine's own, and import from there first."""
        folder = environment.install_packages(
            request.packages, without=request.without, settings=request.settings
        )
        self.workspace.add_paths([folder])
        return Done()

    @handles(MissingModules)
    def _find_missing(self, request: MissingModules) -> MissingModulesReply:
        """List the modules that cannot be imported here, and the packages that were sent here."""
        importlib.invalidate_caches()
        missing = [name for name in request.modules if not _is_importable(name)]
        return MissingModulesReply(missing, self.packages.digests)

    @handles(MissingPackages)
    def _find_missing_packages(self, request: MissingPackages) -> MissingPackagesReply:
        return MissingPackagesReply([name for name in request.names if not _is_installed(name)])

    @handles(FindPlatform)
    def _find_platform(self, request: FindPlatform) -> PlatformReply:
        return PlatformReply(Platform.current())

    @handles(MissingPackageFiles)
    def _find_missing_package_files(self, request: MissingPackageFiles) -> MissingFilesReply:
        return MissingFilesReply(file_cache.missing_digests(request.known))

    @handles(FileParts)
    def _add_file_parts(self, request: FileParts) -> Done:
        for (name, start), piece in zip(request.parts, request.buffers, strict=True):
            self.packages.receiver.add_piece(name, start, piece)
        return Done()

    @handles(ImportPackages)
    def _import_packages(self, request: ImportPackages) -> Done:
        self.packages.activate(request.packages)
        return Done()

    @handles(MissingFiles)
    def _find_missing_files(self, request: MissingFiles) -> MissingFilesReply:
        return MissingFilesReply(self.workspace.missing(request.manifest))

    @handles(FilePiece)
    def _write_file(self, request: FilePiece) -> Done:
        self.workspace.write(request.path, request.start, request.mode, request.buffers)
        return Done()

    @handles(TakeFiles)
    def _take_files(self, request: TakeFiles) -> Done:
        self.workspace.take(request.folder, request.manifest)
        return Done()

    @handles(ReadFiles)
    def _read_files(self, request: ReadFiles) -> FilesReply:
        """Find or read files of this node; relative paths are those that cells use now."""
        return outgoing_files.answer(Path.cwd(), request)

    @handles(Synced)
    def _apply_sync(self, request: Synced) -> SyncedReply:
        sent_modules.withdraw(request.written)
        return SyncedReply(
            self.workspace.apply_sync(request.manifest, request.written, request.paths)
        )


def _is_importable(module: str) -> bool:
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _short_repr(value: Any, limit: int = SHOWN_CHARS) -> str:
    """Return how IPython shows `value`, which spells out no more than a thousand items."""
    try:
        text = pretty(value)
    except Exception as error:
        text = f"<{type(value).__qualname__}: repr failed with {type(error).__name__}>"
    return _shortened(text, limit)


def _shortened(text: str, limit: int = SHOWN_CHARS) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


# -- Figures of matplotlib that were made in another process --------------------------------------


def enable_figures() -> None:
    """Let figures be shown as pictures, once a value has brought matplotlib here.

    The first figure that a process makes selects matplotlib's backend, and that registers the
    pictures with IPython. A figure that was sent is not made here.
    """
    if "matplotlib.figure" not in sys.modules or "matplotlib.pyplot" in sys.modules:
        return
    with contextlib.suppress(ImportError):
        import matplotlib
        import matplotlib.pyplot as plt

        plt.switch_backend(matplotlib.get_backend())


# -- Packages that a notebook has sent to an engine as files --------------------------------------


class SentPackages:
    """Folders of sent packages on the import path of an engine, by package.

    Attributes
    ----------
    digests : dict of str to str
        What each package is made of, by its name.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.receiver = FileReceiver()
        self.digests: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def activate(self, packages: Mapping[str, FileEntries]) -> None:
        """Put the files of packages on the import path, in place of earlier ones."""
        self.receiver.finish(digest for known in packages.values() for digest, _ in known.values())
        for name, known in packages.items():
            folder, old = file_cache.build_folder(known), self._folders.get(name)
            if folder == old:
                continue
            if old is not None:
                sys.path[:] = [path for path in sys.path if path != old]
                self.workspace.forget_below(old)
            self.workspace.add_paths([folder])
            self._folders[name], self.digests[name] = folder, tree_digest(known)


# -- Values of an engine that are also in the notebook: the state in which they last agreed -------


@dataclass(frozen=True, slots=True)
class SentValue:
    """Value of a name when notebook and engine last agreed on it.

    Attributes
    ----------
    digest : str
        Hash of the content as the notebook pickles it.
    state : str
        Hash of the content as this engine pickles it.
    identity : int
        Id of the object on this engine.
    modules : str
        Digests of the files of the notebook's modules that came with it; empty if none did.
    """

    digest: str
    state: str
    identity: int
    modules: str = ""

    def is_edited(self, offered: AutoInput) -> bool:
        """Return whether the files of its modules have changed in the notebook since."""
        return bool(self.modules and offered.modules) and self.modules != offered.modules


class SentValues:
    """Values that were sent from a notebook, or to it.

    Parameters
    ----------
    namespace
        The variables of cells.
    """

    def __init__(self, namespace: MutableMapping[str, Any]) -> None:
        self._namespace = namespace
        self._sent: dict[str, SentValue] = {}

    def record(self, name: str, digest: str, state: str = "", modules: str = "") -> None:
        """Record that the notebook has the value of a name now, with the given hash."""
        value = self._namespace[name]
        self._sent[name] = SentValue(digest, state or self._state(value), id(value), modules)

    def has(self, name: str, digest: str) -> bool:
        """Return whether a name still holds the content that was last sent under it."""
        sent, value = self._sent.get(name), self._namespace.get(name)
        if sent is None or (sent.digest, sent.identity) != (digest, id(value)):
            return False
        return sent.state == self._state(value)  # it may have changed in place

    def decide(self, name: str, offered: AutoInput) -> Decision:
        """Decide whether a cell with ``--auto`` uses the notebook's value or that of this engine.

        A value that changed on one side only is the newer one. Where both have changed, that of
        the notebook is used if its cells changed it after the last cell here that mentions it.
        """
        if name not in self._namespace:
            return "bind"
        sent, state = self._sent.get(name), self._state(self._namespace[name])
        if state == offered.digest and is_shared(state):  # of a widget the rest may differ
            return "bind" if offered.mentioned_later else "same"
        is_edited = sent is not None and sent.is_edited(offered)
        if state == offered.digest:
            return "bind" if is_edited else "same"
        if sent is None:
            return "replace" if offered.assigned_later else "keep"
        is_changed_here = state != sent.state
        is_changed_there = is_edited or offered.digest != sent.digest
        if not is_changed_here:
            return "bind" if is_changed_there else "same"
        later = offered.mentioned_later if is_changed_there else offered.assigned_later
        return "replace" if later else "keep"

    def decide_reference(self, name: str, value: Any, offered: AutoInput) -> Decision:
        """Decide the same for a value of this engine that the notebook has a handle of."""
        if name not in self._namespace:
            return "bind"
        if self._namespace[name] is value:
            return "same"
        return "replace" if offered.assigned_later else "keep"

    def _state(self, value: Any) -> str:
        """Return a hash of the content of a value, or its identity where it cannot be pickled."""
        if model := open_model(value):
            return shared_digest(model)
        try:
            return Parcel.of(value, namespace=self._namespace, models=set()).digest()
        except SkyTransferError:
            return f"object {id(value)}"
