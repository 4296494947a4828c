"""Namespace of an engine: variables, references and values in transfer."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import sys
import uuid
from collections.abc import MutableMapping
from importlib import metadata
from typing import Any

from IPython.lib.pretty import pretty

from ...errors import SkyTransferError
from ..wire.data_values import encode
from ..wire.values import INLINE_BYTES, Parcel
from . import environment, file_cache
from .files import Workspace
from .platforms import Platform
from .sent_packages import SentPackages

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


class EngineNamespace:
    """Namespace of an engine, values behind references, and parcels in transfer.

    Parameters
    ----------
    namespace
        The variables of cells.
    """

    def __init__(self, namespace: MutableMapping[str, Any]) -> None:
        self.namespace = namespace
        self.initial = set(namespace)
        self.refs: dict[str, Any] = {}
        self.parcels: dict[str, Parcel] = {}
        self.sent: dict[str, tuple[str, int, str]] = {}
        self.workspace = Workspace()
        self.packages = SentPackages(self.workspace)
        self._numbers = itertools.count(1)
        # part of references: one of another engine must not be found here
        self._engine_id = uuid.uuid4().hex[:8]

    # -- with a cell ------------------------------------------------------------------------

    def describe_output(self, name: str, keep: bool, as_data: bool = False) -> dict[str, Any]:
        """Describe a variable for a cell's ``-o``; a small one is included.

        It is packed as `data_values` for a notebook that opens no pickles.
        """
        if name not in self.namespace:
            return {"missing": True}
        value = self.namespace[name]
        return self._keep_reference(value) if keep else self._pack(value, name, as_data)

    def describe_result(self, value: Any, as_data: bool = False) -> dict[str, Any]:
        """Describe a cell's result; a small and plain one is included."""
        if as_data:
            return self._data_result(value)
        root = type(value).__module__.partition(".")[0]
        small = getattr(value, "nbytes", 0)
        if root in DATA_PACKAGES and isinstance(small, int) and small <= INLINE_BYTES:
            parcel = Parcel.small(value, INLINE_BYTES)
            if parcel is not None:
                return parcel.inline()
        return self._keep_reference(value)

    def _data_result(self, value: Any) -> dict[str, Any]:
        size = getattr(value, "nbytes", 0)
        if isinstance(size, int) and size <= INLINE_BYTES:
            with contextlib.suppress(SkyTransferError):
                parcel = encode(value, "the result")
                if parcel.nbytes <= INLINE_BYTES:
                    return parcel.inline()
        return self._keep_reference(value)

    def _keep_reference(self, value: Any) -> dict[str, Any]:
        """Store `value` under a number, and describe it."""
        ref = f"{self._engine_id}-{next(self._numbers)}"
        self.refs[ref] = value
        text = _short_repr(value)
        return {"ref": ref, "type": type(value).__qualname__, "repr": text}

    def _dereference(self, ref: str, name: str) -> Any:
        if ref in self.refs:
            return self.refs[ref]
        raise SkyTransferError(
            f"{name} is gone: the engine that held it was restarted",
            hint="run the cell that made it again",
        )

    def _pack(self, value: Any, name: str, as_data: bool = False) -> dict[str, Any]:
        try:
            parcel = encode(value, name) if as_data else Parcel.of(value, name)
        except SkyTransferError as error:
            return {"unpicklable": str(error)}
        if parcel.nbytes <= INLINE_BYTES:
            return parcel.inline()
        held = self._keep_reference(value)
        self.parcels[held["ref"]] = parcel
        return held | {"sizes": parcel.sizes}

    def unpack(self, name: str, value: dict[str, Any]) -> Any:
        """Unpickle a small value that came with a cell."""
        return self._load(Parcel.from_inline(value), name)

    def _load(self, parcel: Parcel, name: str) -> Any:
        try:
            return parcel.load()
        except ModuleNotFoundError as error:
            raise SkyTransferError(
                f"{name} cannot be opened on the engine: it needs the module {error.name!r}",
                hint=f"add --pip {error.name}, or --sync the file that defines it",
            ) from error
        except Exception as error:
            raise SkyTransferError(
                f"{name} cannot be opened on the engine: {type(error).__name__}: {error}"
            ) from error

    # -- requests ---------------------------------------------------------------------------

    def handle_request(
        self, content: dict[str, Any], received: list, buffers: list
    ) -> dict[str, Any]:
        """Handle a request; append buffers of the reply to `buffers`."""
        return getattr(self, f"_op_{content['op']}")(content, received, buffers) or {}

    def _op_same(self, content: dict, *_: object) -> dict:
        """Return whether the name still holds the content that was last sent under it."""
        value = self.namespace.get(content["name"])
        digest, identity, here = self.sent.get(content["name"], ("", 0, ""))
        if (digest, identity) != (content["digest"], id(value)):
            return {"same": False}
        try:
            return {"same": here == Parcel.of(value).digest()}  # it may have changed in place
        except SkyTransferError:
            return {"same": False}

    def _op_begin(self, content: dict, *_: object) -> None:
        self.parcels[content["id"]] = Parcel.empty(content["sizes"])

    def _op_chunk(self, content: dict, received: list, *_: object) -> None:
        self.parcels[content["id"]].fill(content["start"], received)

    def _op_end(self, content: dict, *_: object) -> None:
        name, parcel = content["name"], self.parcels.pop(content["id"])
        value = self._load(parcel, name)
        self.namespace[name] = value
        self.sent[name] = (content["digest"], id(value), Parcel.of(value).digest())

    def _op_pack(self, content: dict, *_: object) -> dict:
        """Pack the value behind a name or a reference for fetching."""
        name = content["name"]
        if "ref" in content:
            value = self._dereference(content["ref"], name)
        elif name in self.namespace:
            value = self.namespace[name]
        else:
            return {"missing": True}
        return self._pack(value, name, bool(content.get("as_data")))

    def _op_fetch(self, content: dict, _received: list, buffers: list) -> dict:
        buffers += self.parcels[content["ref"]].views(content["start"], content["stop"])
        return {}

    def _op_packed(self, content: dict, *_: object) -> None:
        """Drop a parcel that has been fetched; the value stays."""
        self.parcels.pop(content["ref"], None)
        if content.get("release", True):
            self.refs.pop(content["ref"], None)

    def _op_bind(self, content: dict, *_: object) -> None:
        self.namespace[content["name"]] = self._dereference(content["ref"], content["name"])

    def _op_result(self, content: dict, *_: object) -> dict:
        """Store the result of a cell that the notebook could not unpickle."""
        return self._keep_reference(self.namespace["_oh"][content["cell"]])

    def _op_names(self, *_: object) -> dict:
        """List the variables that cells have made, with type, size and a short repr."""
        found = []
        for name, value in list(self.namespace.items()):
            if name in self.initial or name.startswith("_") or name in ("In", "Out"):
                continue
            if type(value).__name__ == "module":
                continue
            size = getattr(value, "nbytes", None)
            size = size if isinstance(size, int) else sys.getsizeof(value, 0)
            found.append([name, type(value).__qualname__, size, _short_repr(value, 60)])
        return {"names": found}

    def _op_packages(self, content: dict, *_: object) -> None:
        """Install packages over the engine's own, and import from there first."""
        without, settings = content.get("without", ()), content.get("settings", {})
        folder = environment.install_packages(
            content["packages"], without=without, settings=settings
        )
        self.workspace.add_paths([folder])

    def _op_missing(self, content: dict, *_: object) -> dict:
        """List the modules that cannot be imported here, and the packages that were sent here."""
        importlib.invalidate_caches()
        missing = [name for name in content["modules"] if not _is_importable(name)]
        return {"missing": missing, "sent": self.packages.digests}

    def _op_lacking(self, content: dict, *_: object) -> dict:
        """List the packages of these names that are not installed here."""
        return {"lacking": [name for name in content["names"] if not _is_installed(name)]}

    def _op_platform(self, *_: object) -> dict:
        return {"platform": Platform.current()}

    def _op_lacking_files(self, content: dict, *_: object) -> dict:
        return {"missing": file_cache.missing_digests(content["known"])}

    def _op_file_parts(self, content: dict, received: list, *_: object) -> None:
        for (name, start), piece in zip(content["parts"], received, strict=True):
            self.packages.receiver.add_piece(name, start, piece)

    def _op_sent(self, content: dict, *_: object) -> None:
        """Import packages from their files, which have all arrived."""
        self.packages.activate(content["packages"])

    def _op_files(self, content: dict, *_: object) -> dict:
        return {"missing": self.workspace.missing(content["manifest"])}

    def _op_file(self, content: dict, received: list, *_: object) -> None:
        self.workspace.write(content["path"], content["start"], content["mode"], received)

    def _op_synced(self, content: dict, *_: object) -> dict:
        paths = content.get("paths", ())
        forgotten = self.workspace.apply_sync(content["manifest"], content["written"], paths)
        return {"forgotten": forgotten}


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


def _short_repr(value: Any, limit: int = 2000) -> str:
    """Return how IPython shows `value`, which spells out no more than a thousand items."""
    try:
        text = pretty(value)
    except Exception as error:
        text = f"<{type(value).__qualname__}: repr failed with {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"
