"""One transfer in a process of its own, which the benchmark `storage` kills.

``python storage_moves.py ACTION ADDRESS FOLDER`` prints ``begun`` and moves objects. Actions:
``up`` from FOLDER/from to the bucket, ``down`` to FOLDER/to, ``copy`` inside the store, ``relay``
like ``up`` by a worker that is a process, whose number is printed too, ``cache`` to FOLDER/cache.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path
from typing import Any

PART = 4096


def main() -> None:
    """Move, with a journal in the folder."""
    from jupyter_sky.machines.storage.stores.files import FilesStore
    from jupyter_sky.machines.storage.stores.journal import Journal
    from jupyter_sky.machines.storage.stores.stores import open_store
    from jupyter_sky.machines.storage.stores.worker_process import WorkerProcess
    from jupyter_sky.machines.storage.transfers.transfer import (
        Transfer,
        TransferItem,
        TransferOptions,
    )

    faulthandler.register(signal.SIGUSR1)  # shows where a process stands that does not end
    action, address, name = sys.argv[1:]
    folder, store = Path(name), open_store(address)
    journal = Journal.open(folder)

    def start_worker(report: Any) -> WorkerProcess:
        worker = WorkerProcess(report)
        print(worker.pid, flush=True)
        return worker

    print("begun", flush=True)
    if action == "cache":
        fill_cache(address, folder / "cache")
        return
    source: Any = store if action in ("down", "copy") else FilesStore(folder / "from")
    target: Any = FilesStore(folder / "to") if action == "down" else store
    prefix = "in/" if action in ("down", "copy") else ""
    put = {"copy": "out/", "down": ""}.get(action, "in/")
    items = [
        TransferItem(each, put + each.key.removeprefix(prefix)) for each in source.list(prefix)
    ]
    worker = {"start_worker": start_worker} if action == "relay" else {}
    options = TransferOptions(part_size=PART, **worker)
    Transfer(source, target, items, journal, options).run()


def fill_cache(address: str, folder: Path) -> None:
    """Bring the objects below ``in/`` to a cache."""
    from jupyter_sky.machines.storage.datasets import local_cache
    from jupyter_sky.machines.storage.stores.cache import DatasetCache
    from jupyter_sky.machines.storage.stores.listing import list_objects
    from jupyter_sky.machines.storage.stores.stores import open_store
    from jupyter_sky.machines.storage.stores.uri import StorageUri, exact_name

    uri = StorageUri.parse(address).child("in/")
    local_cache.data_cache = lambda: DatasetCache(folder)
    store = open_store(uri)
    local_cache.fetch_dataset(store, list_objects(store, uri), exact_name).lease.close()


if __name__ == "__main__":
    main()
