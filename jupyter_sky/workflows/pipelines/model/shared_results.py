"""Results that runs on several machines share: a record for each key, beside the large values.

`Sky.results` names the store. A record has the small values itself, and addresses of the others.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from jupyter_sky.machines.storage.datasets.data import Storage
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.workflows.pipelines.model.identity import TaskKey, digest_of
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, TaskResult

MOST_OUTPUT_BYTES = 2**20
"""Size of what a task has shown above which it is not shared."""
_REQUESTS = 16


class SharedResults:
    """Records of results in a store.

    Parameters
    ----------
    address
        Below which they are.
    kept
        Results of this machine, to which those that are found are added.

    Examples
    --------
    >>> shared = SharedResults("s3://mine/results/", kept)  # doctest: +SKIP
    >>> shared.bring([key])  # doctest: +SKIP
    1
    """

    def __init__(self, address: str, kept: KeptResults) -> None:
        uri = StorageUri.parse(address, Path.cwd())
        self._store = Storage(str(uri if uri.is_folder else uri.child("")))
        self._kept = kept

    def publish(self, results: Iterable[tuple[TaskKey, TaskResult]]) -> None:
        """Let others find results.

        Raises
        ------
        SkyStorageError
            The store has refused one.
        """
        for key, result in results:
            outputs = self._kept.read_file(result.outputs) if result.outputs else b""
            if len(outputs) > MOST_OUTPUT_BYTES:
                result, outputs = replace(result, outputs=""), b""
            contents = [self._kept.read_file(digest) for digest in result.values.values()]
            record = {
                "result": result.to_json(),
                "files": [_as_text(data) for data in [*contents, *filter(None, [outputs])]],
            }
            self._store.write(_name_of(key), json.dumps(record))

    def bring(self, keys: Iterable[TaskKey]) -> int:
        """Add to the results of this machine those that others have for keys; return how many.

        Raises
        ------
        SkyStorageError
            The store does not answer.
        """
        keys = list(keys)
        with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="sky-results") as pool:
            found = list(zip(keys, pool.map(self._read, keys), strict=True))
        return sum(self._adopt(key, record) for key, record in found if record)

    def _read(self, key: TaskKey) -> bytes:
        try:
            with self._store.open(_name_of(key)) as file:
                return file.read()
        except SkyObjectMissing:
            return b""

    def _adopt(self, key: TaskKey, text: bytes) -> bool:
        try:
            record = json.loads(text)
            result = TaskResult.from_json(record["result"])
            files = [base64.b64decode(each) for each in record["files"]]
        except (ValueError, KeyError, TypeError):  # no record of ours
            return False
        digests = [*result.values.values(), *filter(None, [result.outputs])]
        if [digest_of(data) for data in files] != digests:
            return False
        self._kept.write_files(files)
        self._kept.add(key, result)
        return True


def _name_of(key: TaskKey) -> str:
    return f"done/{key.digest}.json"


def _as_text(data: bytes) -> str:
    return base64.b64encode(data).decode()
