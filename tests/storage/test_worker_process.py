from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.journal import Journal
from jupyter_sky.machines.storage.stores.worker_process import WorkerProcess
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem, TransferOptions

from .conftest import store_of

pytestmark = pytest.mark.slow  # starts processes

PART = 64 * 1024
SIZE = 100 * PART
OPTIONS = TransferOptions(part_size=PART, memory=4 * PART)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "big").write_bytes(bytes(range(256)) * (SIZE // 256))
    return FilesStore(tmp_path)


def wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_worker_in_a_process_holds_no_key_and_survives_its_end(amazon, folder):
    workers: list[WorkerProcess] = []

    def start(report):
        workers.append(WorkerProcess(report))
        return workers[-1]

    transfer = Transfer(
        folder,
        store_of(amazon),
        [TransferItem(folder.stat("big"), "big")],
        options=replace(OPTIONS, start_worker=start),
    )
    amazon.fail("PUT", "none", times=10**6, seconds=0.01)
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(transfer.run()))
    thread.start()
    wait_for(lambda: amazon.count("PUT") > 40)
    seen = Path(f"/proc/{workers[0].pid}/cmdline").read_bytes()
    seen += Path(f"/proc/{workers[0].pid}/environ").read_bytes()
    assert b"secret-of-the-test" not in seen and b"Signature" not in seen
    os.kill(workers[0].pid, signal.SIGKILL)
    thread.join(60)
    assert len(results) == 1 and len(workers) == 2
    assert amazon.content("bucket", "big") == (folder.root / "big").read_bytes()
    assert sum(amazon.bytes_in.values()) <= SIZE + 8 * PART + 20_000
    assert amazon.open_uploads("bucket") == 0


SCRIPT = """
import sys
from pathlib import Path
from jupyter_sky.machines.storage.stores.dialects import AmazonDialect
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.journal import Journal
from jupyter_sky.machines.storage.stores.signing import S3Credentials
from jupyter_sky.machines.storage.stores.stores import s3_store
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem, TransferOptions
from jupyter_sky.machines.storage.stores.uri import StorageUri

url, folder, part = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
uri = StorageUri("s3", "bucket", options={"endpoint": url})
credentials = S3Credentials("AKIATEST", "secret-of-the-test")
store = s3_store(uri, url, "us-east-1", lambda: credentials, AmazonDialect())
files = FilesStore(folder)
options = TransferOptions(part_size=part, memory=4 * part)
items = [TransferItem(files.stat("big"), "big")]
Transfer(files, store, items, Journal.open(folder / "journal"), options).run()
"""


def test_another_process_goes_on_after_a_kill(amazon, folder, tmp_path):
    (tmp_path / "journal").mkdir()
    amazon.fail("PUT", "none", times=10**6, seconds=0.01)
    command = [sys.executable, "-c", SCRIPT, amazon.url, str(tmp_path), str(PART)]
    process = subprocess.Popen(command)
    wait_for(lambda: amazon.count("PUT") > 40)
    process.kill()
    process.wait()
    journal = Journal.open(tmp_path / "journal")
    items = [TransferItem(folder.stat("big"), "big")]
    result = Transfer(folder, store_of(amazon), items, journal, OPTIONS).run()
    journal.close()
    assert result.progress.bytes_resumed >= 35 * PART
    assert sum(amazon.bytes_in.values()) <= SIZE + 4 * PART + 20_000
    assert amazon.content("bucket", "big") == (folder.root / "big").read_bytes()
    assert amazon.open_uploads("bucket") == 0


def test_error_of_the_worker_arrives_as_itself(amazon, folder):
    outcomes: list = []
    worker = WorkerProcess(outcomes.append)
    store = store_of(amazon)
    obj = folder.stat("big")
    from jupyter_sky.machines.storage.stores.part_worker import PartJob
    from jupyter_sky.machines.storage.stores.store import Span

    worker.submit(PartJob(1, store.read(replace(obj, key="none"))), lambda _: pytest.fail("asked"))

    def refuse(_):
        raise SkyStorageError("no credentials any more")

    worker.submit(PartJob(2, folder.read(obj, Span(0, 10))), refuse)
    worker.close()
    errors = {outcome.id: outcome.error for outcome in outcomes}
    assert type(errors[1]).__name__ == "SkyObjectMissing"
    assert str(errors[2]) == "no credentials any more"
