"""Values in files of a machine, as ``-o NAME@URI`` has stored them; read by its engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_sky.machines.engines.wire.values import Parcel


def read_value(path: str) -> Any:
    """Return the value in a file that ``-o NAME@URI`` has made."""
    with Path(path).open("rb") as file:
        parcel = Parcel.empty(json.loads(file.readline())["sizes"])
        parcel.fill(0, _pieces(file))
    return parcel.load()


def _pieces(file: Any) -> Iterator[bytes]:
    while piece := file.read(2**24):
        yield piece
