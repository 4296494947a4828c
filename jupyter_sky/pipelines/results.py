"""Results of the tasks of a run: their values lie with the kept results, by their digests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..executor.stored_values import StoredValue
from ..store.atomic_file import write_atomically
from .identity import TaskKey
from .kept_results import KeptResults, TaskResult
from .task_names import plain_name


class RunResults:
    """Results of one run; each file is complete or absent.

    Parameters
    ----------
    folder
        Made at the first result, readable by its owner alone.
    kept
        Where values are stored.
    """

    def __init__(self, folder: Path, kept: KeptResults) -> None:
        self._folder, self._kept = folder, kept

    def find(self, task: str) -> TaskResult | None:
        """Return the result of a task; None before it has ended well."""
        data = self._read(f"{plain_name(task)}.result.json")
        return None if data is None else TaskResult.from_json(data)

    def save(self, task: str, values: Mapping[str, Any], **facts: Any) -> TaskResult:
        """Keep the values of a task.

        Parameters
        ----------
        values
            By name; that of a function has an empty name.
        **facts
            Other attributes of the result.

        Raises
        ------
        Exception
            As pickle raises it.
        """
        import cloudpickle

        handles = {n: v.to_json() for n, v in values.items() if isinstance(v, StoredValue)}
        digests = {
            name: self._kept.write_file(cloudpickle.dumps(value))
            for name, value in values.items()
            if name not in handles
        }
        result = TaskResult(digests, handles, **facts)
        self._write(f"{plain_name(task)}.result.json", result.to_json(), durable=True)
        return result

    def size(self, result: TaskResult) -> int:
        """Return the bytes of the values of a result, without those that stay in stores."""
        return sum(self._kept.file_size(digest) for digest in result.values.values())

    def adopt(self, task: str, result: TaskResult) -> None:
        """Take a result that an earlier run has made, with what it has shown."""
        self._write(f"{plain_name(task)}.result.json", result.to_json(), durable=True)

    def load(self, task: str, name: str = "") -> Any:
        """Return a value of a task that has ended well.

        Raises
        ------
        FileNotFoundError
            It is not kept any more.
        KeyError
            The task has none of that name.
        """
        import cloudpickle

        result = self.find(task)
        if result is None:
            raise FileNotFoundError(task)
        if name in result.handles:
            return StoredValue.from_json(result.handles[name])
        return cloudpickle.loads(self._kept.read_file(result.values[name]))

    def save_key(self, task: str, key: TaskKey | None) -> None:
        """Note the key of a task before it runs; None where it has none."""
        self._write(f"{plain_name(task)}.key.json", None if key is None else key.to_json())

    def key(self, task: str) -> TaskKey | None:
        """Return the key of a task; None where it has none."""
        data = self._read(f"{plain_name(task)}.key.json")
        return None if data is None else TaskKey.from_json(data)

    def save_outputs(self, task: str, outputs: Sequence[dict[str, Any]]) -> None:
        """Keep the outputs of the last attempt of a task, as notebooks have them."""
        self._write(f"{plain_name(task)}.outputs.json", outputs)

    def outputs(self, task: str) -> list[dict[str, Any]] | None:
        """Return the outputs of the last attempt of a task that has ended; None before."""
        result = self.find(task)
        if result is not None and result.outputs:
            with suppress(FileNotFoundError):  # removed since
                return json.loads(self._kept.read_file(result.outputs))
        return self._read(f"{plain_name(task)}.outputs.json")

    def used_files(self) -> set[str]:
        """Return the digests of the files that the results name."""
        paths = self._folder.glob("*.result.json")
        results = [TaskResult.from_json(json.loads(path.read_text())) for path in paths]
        return {each for result in results for each in (*result.values.values(), result.outputs)}

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self._folder / name).read_text())
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: Any, durable: bool = False) -> None:
        """Write a file; where it is durable, a power cut cannot take it back."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._folder / name, json.dumps(data).encode(), durable=durable)
