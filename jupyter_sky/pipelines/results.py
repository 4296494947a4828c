"""Values and outputs of the tasks of a run, in files of a folder."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .task_names import plain_name


class RunResults:
    """Values and outputs of one run; each file is complete or absent.

    Parameters
    ----------
    folder
        Made at the first value, readable by its owner alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, task: str) -> bool:
        """Whether the value of a task is here."""
        return self._value_path(task).exists()

    def save(self, task: str, value: Any) -> None:
        """Keep a value.

        Raises
        ------
        Exception
            As pickle raises it.
        """
        import cloudpickle

        self._write(self._value_path(task), cloudpickle.dumps(value))

    def load(self, task: str) -> Any:
        """Return a value."""
        import cloudpickle

        return cloudpickle.loads(self._value_path(task).read_bytes())

    def save_outputs(self, task: str, outputs: Sequence[dict[str, Any]]) -> None:
        """Keep the outputs of the last attempt of a task, as notebooks have them."""
        self._write(self._folder / f"{plain_name(task)}.outputs.json", json.dumps(outputs).encode())

    def outputs(self, task: str) -> list[dict[str, Any]] | None:
        """Return the outputs of the last attempt of a task that has ended; None before."""
        try:
            return json.loads((self._folder / f"{plain_name(task)}.outputs.json").read_text())
        except FileNotFoundError:
            return None

    def _value_path(self, task: str) -> Path:
        return self._folder / f"{plain_name(task)}.pickle"

    def _write(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = self._folder / f".{path.name}-{uuid.uuid4().hex[:8]}.partial"
        try:
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
