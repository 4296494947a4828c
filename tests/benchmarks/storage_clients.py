"""One client of the benchmark `storage` in a process of its own.

``python storage_clients.py CLIENT ACTION ADDRESS PATH`` moves and prints the seconds of CPU and of
wall time, and the peak of its memory in MB. Clients: ``ours``, ``obstore``, ``boto3``; actions:
``up``, ``down``, ``small`` (a folder up).
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KEY, SECRET, BUCKET, OBJECT = "AKIATEST", "secret-of-the-test", "bucket", "object"
PART, THREADS = 16 * 1024**2, 8


def ours(action: str, address: str, path: Path) -> Callable[[], object]:
    """Transfer of jupyter_sky, with a journal if the environment names its folder."""
    from jupyter_sky.machines.storage.stores.dialects import AmazonDialect
    from jupyter_sky.machines.storage.stores.files import FilesStore
    from jupyter_sky.machines.storage.stores.journal import Journal
    from jupyter_sky.machines.storage.stores.signing import S3Credentials
    from jupyter_sky.machines.storage.stores.stores import s3_store
    from jupyter_sky.machines.storage.stores.uri import StorageUri
    from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferItem

    uri = StorageUri("s3", BUCKET, options={"endpoint": address})
    credentials = S3Credentials(KEY, SECRET)
    store = s3_store(uri, address, "us-east-1", lambda: credentials, AmazonDialect())
    files = FilesStore(path.parent)
    folder = os.environ.get("STORAGE_JOURNAL")
    journal = Journal.open(Path(folder)) if folder else None

    def move() -> object:
        if action == "up":
            source, target, items = files, store, [TransferItem(files.stat(path.name), OBJECT)]
        elif action == "down":
            source, target, items = store, files, [TransferItem(store.stat(OBJECT), path.name)]
        else:
            source, target = files, store
            items = [TransferItem(found, found.key) for found in files.list(path.name + "/")]
        return Transfer(source, target, items, journal).run()

    return move


def obstore(action: str, address: str, path: Path) -> Callable[[], object]:
    """Obstore, each way as fast as it goes: parts in parallel, small objects in its own loop."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=address,
        region="us-east-1",
        access_key_id=KEY,
        secret_access_key=SECRET,
        virtual_hosted_style_request=False,
        unsigned_payload=True,
        client_options={"allow_http": True},
    )

    def down() -> None:
        size = obstore.head(store, OBJECT)["size"]
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

        def fetch(start: int) -> None:
            length = min(PART, size - start)
            data = obstore.get_range(store, OBJECT, start=start, length=length)
            os.pwrite(descriptor, data, start)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(fetch, range(0, size, PART)))
        os.close(descriptor)

    async def send_all() -> None:
        slots = asyncio.Semaphore(32)

        async def send(file: Path) -> None:
            async with slots:
                await obstore.put_async(store, file.name, file.read_bytes())

        await asyncio.gather(*map(send, path.iterdir()))

    def up() -> object:
        return obstore.put(store, OBJECT, path, chunk_size=PART, max_concurrency=THREADS)

    return {"up": up, "down": down, "small": lambda: asyncio.run(send_all())}[action]


def boto3(action: str, address: str, path: Path) -> Callable[[], object]:
    """Amazon's SDK."""
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    quiet = "when_required"
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(
            request_checksum_calculation=quiet,
            response_checksum_validation=quiet,
            max_pool_connections=32,
        ),
    )
    config = TransferConfig(multipart_chunksize=PART, max_concurrency=THREADS)

    def send(file: Path) -> object:
        return client.put_object(Bucket=BUCKET, Key=file.name, Body=file.read_bytes())

    def small() -> None:
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(send, path.iterdir()))

    return {
        "up": lambda: client.upload_file(str(path), BUCKET, OBJECT, Config=config),
        "down": lambda: client.download_file(BUCKET, OBJECT, str(path), Config=config),
        "small": small,
    }[action]


def main() -> None:
    """Move once and print the figures."""
    name, action, address, path = sys.argv[1:]
    clients = {"ours": ours, "obstore": obstore, "boto3": boto3}
    move = clients[name](action, address, Path(path))
    began, cpu = time.perf_counter(), time.process_time()
    move()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - began,
        "peak_mb": usage.ru_maxrss / 1024,
    }
    print(json.dumps(figures), flush=True)
    # threads of obstore that still run when the interpreter ends abort the process now and then
    os._exit(0)


if __name__ == "__main__":
    main()
