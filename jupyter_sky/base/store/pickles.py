"""Pickles of stores, journals and kept results, also of the version before the modules moved."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from jupyter_sky.base.moved_modules import new_name


class _Unpickler(pickle.Unpickler):
    """Unpickler that finds modules, classes and functions that have moved since."""

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        home = new_name(path)  # where the module was divided
        found = super().find_class(new_name(module) if home == path else home, name)
        if module.startswith("cloudpickle") and name == "subimport":
            return lambda imported: found(new_name(imported))
        return found


def open_pickle(data: bytes | bytearray | memoryview, buffers: Sequence[Any] = ()) -> Any:
    """Return a pickled value that this version or the one before has stored."""
    try:
        return pickle.loads(data, buffers=buffers)
    except (ModuleNotFoundError, AttributeError):
        return _Unpickler(io.BytesIO(data), buffers=buffers).load()
